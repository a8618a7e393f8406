"""Where runs are executed.

| module | what it does |
|---|---|
| `base` | what the scheduler asks of such a place |
| `local` | this machine: the next two together |
| `commands` | commands, spawned |
| `pool` | everything else, in warm workers |
| `finish` | what both do when a run ends |
"""
