"""Coding agents: a small class, or a table of an experiment file, for each.

| module | agents |
|---|---|
| `base` | the interface of an agent: what it is assigned, and how it is started |
| `registry` | agents by name; any command line as an agent; `nop`, `oracle` and our own small one (`box/agent.py`) |
| `clients` | `claude`, `codex`, `opencode` and `mini`: programs that are installed on this machine |
"""
