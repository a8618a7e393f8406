"""The world: compiled kernels over arrays with a leading world axis. A single world is a batch of one.

| module | what it does |
|---|---|
| `layout`, `rules` | how it lies in memory; its laws as numbers |
| `advance` | its birth, and its step from one tick to the next |
| `streams`, `lanes`, `numerics` | draws, one world or many side by side; functions that give the same bits everywhere |
| `stories`, `questions` | what happens, and what is asked about it |
| `lmsr`, `perps` | the two venues |
| `orders`, `execution` | what a holder may do, and what becomes of it |
| `traders`, `belief`, `feed` | everybody else: what they do, what can be inferred, what is said |
| `world`, `looking`, `views`, `names`, `text` | one world as players see it: views, names and sentences |
| `calls`, `playing` | kernels that Python calls: for one world, for a batch |
| `knowledge`, `chronicle` | what nobody sees: the model, the truth, the world as it will be |
| `compiled` | compiling, and keeping what was compiled |
"""
