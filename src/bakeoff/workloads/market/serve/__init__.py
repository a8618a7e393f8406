"""The world for agents that connect from outside. Every protocol is generated from the one table of methods.

| module | what it has |
|---|---|
| `game` | a world that waits for its seats, the tokens of a table, and what a served game leaves behind |
| `http` | JSON-RPC over HTTP, its OpenAPI document, and authentication for all protocols |
| `a2a` | standard A2A |
| `mcp` | MCP, over stdio and HTTP |
| `server` | all of them on one port, from the first call to the last tick |
"""
