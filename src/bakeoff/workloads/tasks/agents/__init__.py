"""Coding agents: one small class or one table of a file for each.

| module | agents |
|---|---|
| `face`, `registry`, `installed` | what an agent is; by name; where its program is |
| `nop`, `oracle` | does nothing; plays the reference solution |
| `builtin` | our own small one, whose program is `box/agent.py` |
| `claude`, `codex`, `opencode`, `mini` | the usual clients |
| `command` | any command line |
"""
