"""The `schedsim` workload: agent workflows on rate-limited, failing, priced providers, in virtual time.

| module | idea |
|---|---|
| `workflow` | the graph of one iteration, and the state of one workflow |
| `hashing`, `draws`, `service` | evidence, keyed random numbers, latency laws |
| `tiers`, `tiers.toml` | the tables of providers, pools and latencies, which a user can replace |
| `buckets`, `resources` | rate limits, slots and the queues in front of them |
| `ranks`, `rolling`, `policies` | what policies reckon with, and the policies |
| `model`, `attempt`, `engine` | what is simulated, one try of a node, and the events |
| `summary`, `outputs`, `perfetto`, `console` | what comes out |
| `params`, `workload` | the parameters, and the face to the rest of the house |
"""
