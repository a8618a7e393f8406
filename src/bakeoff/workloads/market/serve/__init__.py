"""The world for agents that connect from outside. Every protocol is generated from the one table of methods.

| module | what it has |
|---|---|
| `game` | a world that waits for its seats, and the tokens of a table |
| `fair` | whose call is next: the seats take turns |
| `disk_journal` | what was acknowledged, on disk: a game goes on after a crash |
| `http` | JSON-RPC over HTTP, its OpenAPI document, and authentication for all protocols |
| `a2a` | standard A2A |
| `mcp` | MCP, over stdio and HTTP |
| `results` | what a served game leaves behind |
| `server` | all of them on one port, from the first call to the last tick |
"""
