"""What runs attempts on one machine: spawning, warm workers, limits and captured output.

| module | what it does |
|---|---|
| `node` | what both kinds of node share: the run's directory, `meta.json`, the supervisor, limits; `open_node` |
| `commands` | a node that spawns commands |
| `enclosure` | the PID namespace that they are in, where one can be had |
| `workers`, `worker` | a node that runs workloads in warm worker processes; the worker process, restored after each run |
| `context` | `Context`, the `ctx` of a run |
| `capture` | where output goes |
| `collect` | reads a large `metrics.jsonl` in its own process |

A node takes `Attempt` orders and gives them back with results. It knows nothing about the plan, the queue or the
database, so an executor can open one on another machine.
"""
