"""Kinds of runs, one module or package for each. They are found by entry point and do not know each other.

| module | what a run is |
|---|---|
| `command` | a command line |
| `python` | a function in a warm worker |
| `market` | an agent in a market world |
| `tasks` | a coding agent on a task in a box |
| `schedsim` | a simulation of scheduling policies |
| `template`, `metrics` | command templates, and metrics that a command leaves behind |
"""
