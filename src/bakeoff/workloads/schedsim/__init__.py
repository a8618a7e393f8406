"""The `schedsim` workload: agent workflows on rate-limited, failing, priced providers, in virtual time.

| module | what is in it |
|---|---|
| `world` | workflows: their graph, evidence and state; slots with rate limits, and queues |
| `draws`, `tiers.toml` | the tables of tiers and latencies, which a user can replace; keyed random draws |
| `policies` | the interface of a policy and the built-in ones |
| `engine` | the events |
| `outputs` | figures, files and traces |
| `workload` | the parameters of a run, and the workload itself |
| `command`, `verbs` | `bakeoff schedsim` |
| `dialect`, `sweep_plan`, `sweep_files` | the sweep runner's habits; its experiment files; its run directories and tables |
| `starter` | the example of `bakeoff init` |
| `pages` | the three figures that a report shows of a sweep |
"""
