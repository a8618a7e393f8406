"""The `gridworld` workload: agents that have to find out, within an episode, what the stations of a room do.

| module | what is in it |
|---|---|
| `params` | the parameters of a run |
| `workload` | the interface to the rest of bakeoff |
| `capacity` | how large policies are |
| `policies` | networks with different memories; how to write your own |
| `kernels` | compiled loops of the policies |
| `ppo` | the training |
| `evaluation` | held-out rooms, scores, and their metrics |
| `outputs` | the files of a run, and its checkpoint |
| `levels` | from which chains, sinks, sizes and terrains rooms are drawn |
| `curricula` | in which room an environment plays next |
| `rooms` | kernels: the room of a task number |
| `world` | `Worlds`: a batch of rooms, stepped at once; task numbers |
| `walkers` | the random and the clairvoyant walker |
| `episode`, `replay` | one episode, recorded; the same as text, GIF and HTML |
| `pages` | the page of the report |
| `envs` | rooms as Gymnasium environments |
| `verbs`, `command` | `bakeoff gridworld` on the command line |
| `starter` | the example of `bakeoff init` |
| `jit` | the compiler of the kernels |
"""
