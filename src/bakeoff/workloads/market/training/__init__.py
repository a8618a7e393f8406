"""A small policy, trained by group-relative policy gradient on batches of worlds.

| module | what it does |
|---|---|
| `features` | what an instrument looks like as numbers |
| `network` | from numbers to chances of short, flat and long |
| `policy` | networks, features and stakes: a file that can be played as an agent |
| `rollouts` | a policy in many worlds at once |
| `learner` | one step of learning |
| `loop`, `curve` | the whole training, iteration by iteration, resumable; its learning curve |
| `benchmark` | the experiment that decides whether it has become better |
"""
