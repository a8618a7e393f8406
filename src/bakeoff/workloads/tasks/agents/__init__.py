"""Coding agents: a small class, or a table of an experiment file, for each.

| module | agents |
|---|---|
| `base` | the interface of an agent: what it is assigned, and how it is started |
| `registry` | agents by name; `nop`, `oracle` and the small agent of this package, whose program is `box/agent.py`; any command line as an agent |
| `clients` | `claude`, `codex`, `opencode` and `mini`: programs that are installed on this machine |
"""
