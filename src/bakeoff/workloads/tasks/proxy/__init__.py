"""The recording model proxy: every client's calls go through it, within budgets, and no key enters a sandbox.

| module | what it does |
|---|---|
| `server` | `ModelProxy` and its runs: open one, hand its token to an agent, close it and read its totals |
| `http` | the HTTP server: uvicorn with limits for clients that nobody should trust; which API is at which path |
| `relay` | one call from end to end: the request to a provider, its retries and its stream |
| `providers` | who serves which model with which key; what a run may spend |
| `spending` | what a run has spent, and what is reserved for its running calls |
| `prices` | the price list that ships (`prices.toml`), or the user's |
| `powers` | which tools and services of a provider a request may use |
| `nonce` | a text of the run before all that a provider may cache |
| `shared` | rates of a provider and the budget of an experiment, over all worker processes |
| `wire`, `openai`, `anthropic`, `gemini` | the APIs that clients speak, and the shape in which all of them are recorded |
| `egress` | another proxy: the way out to a list of hosts |
| `thread` | the thread that both proxies serve in |
| `records` | `calls.jsonl`, totals and the trajectory; which call continues which |

Only `http` and `relay` need the extra `tasks`; they are imported when a proxy starts.
"""
