"""Results that are looked at more than once: what an earlier look leaves, and tests that may be read at any time.

| module | what it does |
|---|---|
| `looks` | who has seen results before, and what that leaves for a verdict on a plan that has grown |
| `evidence_path` | what an edition that runs until it is decided says |
| `until_decided` | runs that stop when they have decided |
| `race` | many arms in a sequential test: losers leave, the last one is the best |
| `combined` | all editions of one experiment together |
| `prereg` | what was registered before the first result |
"""
