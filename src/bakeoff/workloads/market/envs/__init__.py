"""The market world as reinforcement-learning environments. Importing this registers `bakeoff/Market-v0` with Gymnasium.

| module | content |
|---|---|
| `gymnasium_env` | `MarketEnv`: one seat in one world; `MarketVectorEnv`: the same for many worlds at once |
| `pettingzoo_env` | `MarketParallelEnv`: several seats in one world, with sealed orders |
"""

from bakeoff.errors import UsageError, install

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise UsageError(f"environments need gymnasium: {install('environments')}") from error

ENV_ID = "bakeoff/Market-v0"

if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        ENV_ID,
        entry_point="bakeoff.workloads.market.envs.gymnasium_env:MarketEnv",
        vector_entry_point="bakeoff.workloads.market.envs.gymnasium_env:MarketVectorEnv",
    )
