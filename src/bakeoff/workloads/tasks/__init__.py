"""The `tasks` workload: coding agents on real tasks, isolated, verified and scored.

| module | what it does |
|---|---|
| `workload` | the plug-in: parameters of a rollout, checks before a run, one rollout |
| `dialect`, `benchmark` | the task benchmark's own result files; its TOML as a plan |
| `verbs`, `task_command`, `eval_command` | `bakeoff task` and `bakeoff eval` |
| `starter` | the example of `bakeoff init` |
| `model`, `schema` | a task in any format; the tables of its files |
| `loading`, `prepared`, `harbor` | a directory becomes a task, with overrides; the readers of each format |
| `repository`, `start`, `diff` | git and where commits come from; the state in which an agent starts; what it changed |
| `environment` | a task's environment as an image and as the spec of a sandbox; files and paths in it |
| `network` | which hosts the build, the agent and the tests may reach |
| `attempt`, `agents`, `proxy` | one rollout: an agent at work, and the recording proxy through which it calls models |
| `verify`, `guard` | hidden tests of a prepared task; what of a diff may not steer them |
| `pytest_in_box`, `witness`, `hidden_values`, `expected` | the runner inside; tests that say that they came to their end; constants of hidden files; what an honest run looks like |
| `harbor_run`, `startup` | the steps of a Harbor or terminal-bench task with their tests; start-up files before them |
| `launcher`, `work_in_box` | the work in a sandbox of its own, called by tests in another |
| `imported_work`, `object_server`, `work_startup` | modules of the work that tests import through a launcher: the tests' side, the work's side, and how it is installed |
| `isolation`, `cheats` | setting a task up with a launcher; cheats that must not succeed |
| `honeypots` | checks for what an agent must not do |
| `results`, `scoring` | results and rewards; judge and custom metrics |
| `evaluation`, `causes`, `pages` | scores and files of a rollout; what can break, and what follows; report pages |
| `rescore` | scoring stored work again |
| `authoring`, `check` | making tasks; proving that they are fit |

Importing this package imports nothing else, so that verbs and dialects are found quickly.
"""
