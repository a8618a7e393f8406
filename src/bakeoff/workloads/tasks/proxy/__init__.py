"""The recording model proxy: every client's calls go through it, with budgets, and without keys in the box.

| module | what it does |
|---|---|
| `server`, `http` | the loop that listens, and HTTP for clients that nobody should trust |
| `runs`, `budget` | a run as the proxy knows it, and what it may spend |
| `relay`, `upstream`, `providers` | one call from end to end; the way to a provider; who serves which model |
| `wire`, `sse`, `decoding` | the APIs that clients speak; streams; JSON that somebody else wrote |
| `calls`, `usage`, `totals` | the record of every call, what it used, and what that adds up to |
| `conversations`, `transcript` | which call continues which; calls as steps of a trajectory |
"""
