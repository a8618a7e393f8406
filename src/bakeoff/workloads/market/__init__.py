"""The `market` workload: prediction markets, perpetual futures and a social feed, drawn from a key and played by agents.

| module | what it does |
|---|---|
| `workload`, `verbs`, `cli` | the interface to the rest of bakeoff, and the verbs of `bakeoff market` |
| `scenario`, `snapshot` | what is drawn: size, regime, tier and key, and the rules in words; the same as two files |
| `world` | the world itself: compiled kernels over arrays |
| `batch` | many worlds at once |
| `session`, `methods`, `requests` | one seat as JSON calls: the table of methods, and what each of them takes |
| `rpc`, `render` | JSON-RPC, and views as JSON |
| `agents` | agents that ship, and those of users |
| `play`, `rollout` | an episode; one agent from first to last tick, compared with the Bayes player |
| `journal` | what a seat saw, did and earned, and how it behaved |
| `metrics`, `scores` | what an episode says about a seat: its trades, its metrics, and the formulas of the scores |
| `outputs`, `campaign` | the files of a run, and of several |
| `pages` | its pages in the report |
| `serve` | the world for agents that connect from outside |
| `envs`, `training` | as environments for training, and a policy trained in them |
"""
