"""The world for agents that come from outside. Every face is made from the one table of methods.

| module | what it does |
|---|---|
| `game`, `table` | a world that waits for its seats; who may sit where |
| `http`, `openapi` | JSON-RPC over HTTP, and its description of itself |
| `a2a` | standard A2A |
| `mcp` | MCP, over stdio and HTTP |
| `guard`, `connection` | who gets in, and how long a stranger may take to say so |
| `run`, `results` | from the first call to the last tick, and what it leaves behind |
"""
