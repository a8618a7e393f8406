"""The `market` workload: prediction markets, perpetual futures and a social feed, drawn from a key and played by agents.

| module | what it does |
|---|---|
| `workload`, `verbs`, `cli` | the interface to the rest of bakeoff, and the verbs of `bakeoff market` |
| `starter` | the example of `bakeoff init` |
| `scenario`, `snapshot` | what is drawn: size, regime, tier and key, and the rules in words; the same as two files |
| `world` | the world itself: compiled kernels over arrays |
| `session`, `methods` | one seat as JSON calls: budget, deadline and idempotency; the table of methods |
| `rpc` | JSON-RPC: messages, errors, and the parameters that each method takes |
| `agents` | agents that ship, and those of users |
| `play` | an episode; one agent from first to last tick, compared with the Bayes player |
| `journal` | what a seat saw, did and earned, and how it behaved: its trajectory and its ledger |
| `metrics` | what an episode says about a seat: its metrics, and the formulas of the scores |
| `outputs`, `result_files` | the files of a run, and of several; the same as results to compare |
| `pages` | its pages in the report |
| `serve` | the world for agents that connect from outside |
| `envs` | as environments for reinforcement learning |
| `policy`, `training` | a small policy: its features, its file and its agent; how it is trained |
"""
