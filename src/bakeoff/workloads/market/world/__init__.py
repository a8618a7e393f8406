"""The world: compiled kernels over arrays with a leading world axis. A single world is a batch of one.

| module | content |
|---|---|
| `layout`, `rules` | the world's memory; its laws as numbers |
| `jit`, `numerics`, `philox` | compiling and caching; functions with the same bits on every machine; random draws |
| `stories`, `markets`, `perps` | kernels: what happens and what can be inferred; the two venues |
| `traders`, `seats` | kernels: background traders; what a seat does, sees and owns |
| `advance` | birth of worlds, and their step from one tick to the next |
| `feed` | posts, messages and the tape: as numbers, and in words |
| `world`, `reader`, `orders`, `views` | one world for Python: acting and time; looking; orders; the records it shows |
| `truth` | what is hidden: the model, and everything that will happen |
"""
