"""The market world as reinforcement-learning environments. Importing this registers `bakeoff/Market-v0` with Gymnasium.

| module | what it does |
|---|---|
| `gymnasium_env` | `MarketEnv`: one seat in one world |
| `vector` | `MarketVectorEnv`: the same, many worlds at once |
| `pettingzoo_env` | `MarketParallelEnv`: several seats in one world, with sealed orders |
| `shape`, `render` | what they share: spaces, actions, options; a seat's view as text |
"""

import gymnasium

ENV_ID = "bakeoff/Market-v0"

if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        ENV_ID,
        entry_point="bakeoff.workloads.market.envs.gymnasium_env:MarketEnv",
        vector_entry_point="bakeoff.workloads.market.envs.vector:MarketVectorEnv",
    )
