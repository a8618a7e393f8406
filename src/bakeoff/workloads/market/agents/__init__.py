"""Agents: those that ship, and those of a user.

| module | what it has |
|---|---|
| `base` | the interface of an agent (`Brief`, `Seat`, `Agent`), and `load`: an agent by its name |
| `baselines` | simple agents to compare others with, and probes that look for exploits of the world |
| `bayes` | the best that public information allows, and the bound of knowing the future |
| `process` | a program, or a Python class in its own process |
| `program` | what a program that is not trusted may see: its sandbox and its environment |
| `llm` | a language model behind an endpoint |

A trained policy is an agent too: `policy:FILE`, see `bakeoff.workloads.market.policy`.
"""
