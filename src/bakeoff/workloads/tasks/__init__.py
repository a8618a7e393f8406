"""The `tasks` workload: coding agents on real tasks, isolated, verified and scored.

| module | what it does |
|---|---|
| `workload`, `params` | the face to the rest of the house; the parameters of a rollout |
| `model`, `loading`, `overrides` | a task in any format; which format it is in; the same task with something changed |
| `prepared` | the prepared format |
| `harbor`, `schema` | Harbor's, and the tables of its `task.toml` |
| `terminal_bench`, `compose`, `parsers` | terminal-bench's, its compose file, and what its tests print |
| `repository`, `git`, `start` | where commits come from; the state in which an agent starts |
| `built`, `boxes` | its environment as an image, and as a box |
| `attempt`, `agents`, `proxy` | one rollout: an agent at work, and the recording proxy that it asks models through |
| `changes`, `guard` | what it changed, and what of that may not steer the tests |
| `verify`, `hidden_tests`, `harbor_run` | the tests: of a diff, of a prepared task, of a Harbor task |
| `pytest_tools`, `pytest_in_box` | the pytest that they run with |
| `results`, `rewards`, `artifacts`, `scoring` | what was found; reward files; kept files; metrics and rubrics |
| `evaluation`, `rollouts`, `pages` | what people read: files of a rollout, files of a benchmark, report pages |
| `rescore` | scoring stored work again |
| `authoring`, `describe`, `check`, `proof` | making tasks, looking at them, and proving that they are fit |
"""
