"""The world: compiled kernels over arrays with a leading world axis. A single world is a batch of one.

| module | content |
|---|---|
| `layout`, `rules` | the world's memory; its laws as numbers |
| `jit`, `numerics`, `philox` | compiling and caching; functions with the same bits on every machine; random draws |
| `stories`, `markets`, `perps` | kernels: what happens and what can be inferred; the two venues |
| `seats` | kernels: what a seat does, sees and owns; background traders |
| `advance` | birth of worlds, their step from one tick to the next, and `MarketBatch`: many worlds at once |
| `feed` | posts, messages and the tape: as numbers, and in words |
| `world`, `reader`, `views` | one world for Python: acting, orders and time; looking; the records it shows, also as JSON |
| `truth` | what is hidden: everything that will happen |
"""
