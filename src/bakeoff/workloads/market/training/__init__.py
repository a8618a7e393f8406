"""A small policy, trained by group-relative policy gradient on batches of worlds.

| module | content |
|---|---|
| `features` | what an instrument looks like as numbers |
| `policy` | networks, features and stakes: a file that can be played as an agent |
| `loop` | rollouts in many worlds at once, learning from them, and the whole training, resumable |
"""
