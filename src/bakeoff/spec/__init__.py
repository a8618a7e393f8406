"""An experiment file becomes a validated plan; the interfaces of workloads and dialects.

| module | what it does |
|---|---|
| `load` | an experiment file becomes a plan: `load_plan` |
| `formats` | TOML, YAML and JSON; `${VAR}` and `.env` files |
| `experiment` | the file as one model, with durations and sizes |
| `directions` | what the name of a metric says about which way is better |
| `problems` | what is wrong with a file, and in which line |
| `expand` | matrix, arms, ablations and tasks multiplied out |
| `advice` | what is probably a mistake in a plan that could run |
| `plan`, `identity` | cells and runs; run ids |
| `select` | expressions that choose runs |
| `workload`, `registry` | the interface of a kind of run; plug-ins by name, and the interface of another tool's files |
| `starters` | the examples that `bakeoff init` writes |
"""
