"""The workloads, one module or package for each kind of run. Entry points find them; they do not import each other,
only what several of them share.

| module | what a run is |
|---|---|
| `command` | a command line |
| `python` | a function in a warm worker |
| `market` | an agent in a market world |
| `gridworld` | one training of a policy in rooms of a gridworld |
| `tasks` | a coding agent on a task in a sandbox |
| `language` | one training of a small language model by policy gradients |
| `schedsim` | a simulation of scheduling policies |
| `template`, `metrics` | command templates, and metrics that a command leaves behind |
| `jit` | compiled kernels, for worlds that need speed |
| `training` | networks, optimizer, checkpoints and pages of the workloads that train |
| `starters` | examples of `bakeoff init` for commands, functions and tables; other workloads have a module `starter` |
| `program`, `functions` | whether a command's program or a function is there, before any run starts |
"""
