"""The `market` workload: prediction markets, perpetual futures and a social feed, drawn from a key and played by agents.

| module | what it does |
|---|---|
| `workload` | the face to the rest of the house |
| `scenario`, `snapshot` | what is drawn: size, regime, tier and key; the same as two files |
| `world` | the world itself: compiled kernels over arrays |
| `batch` | many worlds at once |
| `session`, `methods`, `requests`, `looks`, `acts` | a seat's face in JSON: the table of methods, what each takes, gives and does |
| `rpc`, `render`, `rules` | JSON-RPC, views as JSON, and how the world works in words |
| `agents` | who plays |
| `play`, `rollout`, `attendance` | an episode; one agent from first to last tick; how a seat behaved |
| `journal`, `ledger` | what a seat saw, did and got; its trades and holdings |
| `metrics`, `scores`, `reference` | what an episode says about a seat, and what the best player would have earned |
| `outputs`, `campaign` | the files of a run, and of several |
| `pages` | its pages in the report |
| `serve` | the world for agents that come from outside |
| `envs`, `training` | as environments for training, and a policy trained in them |
"""
