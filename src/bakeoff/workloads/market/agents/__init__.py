"""Who plays: agents that ship, and agents of a user's own.

| module | agents |
|---|---|
| `face`, `load` | what an agent is and gets; an agent by its name |
| `passive`, `chance`, `chartist`, `forecaster`, `reader` | plain ones to be measured against |
| `probes`, `cracker` | those that look for a hole in the world, and must earn nothing |
| `bayes`, `beliefs`, `clairvoyant` | the best that can be done with what is known, and with what is not |
| `sizing`, `orders` | how much to stake, and how it is ordered |
| `learned` | a trained policy |
| `llm` | a language model behind an endpoint |
| `lines`, `host` | a program of its own; a Python class in a process of its own |
"""
