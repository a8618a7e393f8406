"""Recorded runs in the formats of other tools, mostly as training data.

| module | what it does |
|---|---|
| `exporting` | the table of formats; select rollouts, write them in one format, summarise |
| `rollouts` | the trajectories of results, each with its reward and its group; filters |
| `completions` | the answers of a training run, each a rollout |
| `dialogue` | a trajectory as conversations: what the model read and what it wrote |
| `conversations` | formats whose rows are messages: TRL, ART, ShareGPT |
| `traces` | formats that keep a whole run: verifiers, ATIF, steps as JSON lines and Parquet |
| `inspect_logs` | logs of Inspect AI, with every run of an edition |

    with closing(open_results(["trading"], root)) as results:
        export(results, "trl-grpo", Filters(success=True))
"""
