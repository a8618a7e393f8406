"""The `gridworld` workload: agents that have to find out, within an episode, what the stations of a room do.

| module | what is in it |
|---|---|
| `levels` | from which chains, sinks, sizes and terrains rooms are drawn |
| `rooms` | kernels: the room of a task number |
| `world` | `Worlds`: a batch of rooms, stepped at once; task numbers |
| `jit` | the compiler of the kernels |
"""
