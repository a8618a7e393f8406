"""A plan becomes finished records: what to start next, where, under which limits, and what came of it.

| module | what it does |
|---|---|
| `session` | one call of `run`: the edition, its lease, the same code as before |
| `scheduler`, `queue`, `budget` | the loop; which run comes next; what all runs together may use |
| `executors` | where runs are executed |
| `context`, `wire`, `worker` | what a run knows; what scheduler and worker say to each other; the worker |
| `world`, `seeding` | what a run may change in its worker and finds restored; random generators |
| `capture` | where output goes |
| `watch`, `cgroup` | limits of time and memory, and what the kernel counts |
| `processes`, `orphans`, `warden` | process trees, those that outlive their run, and who ends them when the scheduler dies |
"""
