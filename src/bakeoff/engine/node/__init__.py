"""What runs attempts on one machine: spawning, warm workers, limits and captured output.

| module | what it does |
|---|---|
| `node` | what both kinds of node share: the run's directory, `meta.json`, the supervisor; `open_node` |
| `commands` | a node that spawns commands |
| `workers`, `worker` | a node that runs workloads in warm worker processes; the worker process |
| `context` | `Context`, the `ctx` of a run |
| `world` | what a run may change in its worker and the next run finds restored; seeding |
| `capture` | where output goes |
| `limits` | limits of time and memory, and why a process ended |
| `supervisor` | the process that ends all runs when the node dies |

A node takes `Attempt` orders and gives them back with results. It knows nothing about the plan, the queue or the
database, so an executor can open one on another machine.
"""
