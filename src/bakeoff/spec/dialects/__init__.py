"""Experiment files of other tools, read as ours.

| module | what it does |
|---|---|
| `sweep` | the sweep runner's JSON |
"""
