"""Agents: those that ship, and those of a user.

| module | what it has |
|---|---|
| `base` | the interface of an agent: `Brief`, `Seat`, `Agent` |
| `load` | an agent by its name |
| `baselines` | simple agents to compare others with |
| `bayes` | the best that public information allows, and the bound of knowing the future |
| `probes` | agents that look for exploits of the world |
| `process` | a program, or a Python class in its own process |
| `llm` | a language model behind an endpoint |
| `learned` | a trained policy |
"""
