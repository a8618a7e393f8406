"""The `schedsim` workload: agent workflows on rate-limited, failing, priced providers, in virtual time.

| module | what is in it |
|---|---|
| `world` | the graph of one iteration, the evidence that ends it, and the state of one workflow |
| `draws` | keyed random numbers and latency laws |
| `tiers`, `tiers.toml` | the tables of providers, pools and latencies, which a user can replace |
| `resources` | rate limits, slots and the queues in front of them |
| `policies` | the interface of a policy and the built-in ones |
| `engine` | the events |
| `outputs` | figures, files and traces |
| `workload` | the parameters of a run, and the workload itself |
| `command`, `verbs` | `bakeoff schedsim` |
| `dialect`, `sweep_files` | the sweep runner's experiment files; its run directories and tables |
| `pages` | the three figures that a report shows of a sweep |
"""
