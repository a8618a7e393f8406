"""A small policy, trained by group-relative policy gradient on batches of worlds.

| module | content |
|---|---|
| `features` | what an instrument looks like as numbers |
| `policy` | networks, features and stakes: a file that can be played as an agent |
| `learner` | rollouts of a policy in many worlds at once, and one step of learning from them |
| `loop` | the whole training, resumable; its learning curve, and the experiment that decides whether the policy is better |
"""
