"""An experiment file becomes a validated plan.

| module | what it does |
|---|---|
| `load`, `formats`, `variables`, `units` | files: TOML, YAML or JSON, `${VAR}`, durations and sizes |
| `experiment` | the file as one model |
| `problems`, `locate` | what is wrong with it, and in which line |
| `dialect` | the interface for experiment files of other tools |
| `expand`, `plan`, `identity` | matrix, arms and tasks multiplied out; cells and runs; run ids |
| `select` | which runs are meant |
| `workload`, `registry`, `trajectory` | the interface of a workload, how plug-ins are found, and a step that a run records |
| `garbage` | many objects at once without looking for garbage |
"""
