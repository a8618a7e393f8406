"""What the workloads that train networks share: `language` and `gridworld`.

| module | what is in it |
|---|---|
| `flat` | networks whose weights are one vector, and Adam on it |
| `files` | the files of a run that grow while it trains, its checkpoint, and files of tensors |
| `params` | types of parameters |
"""
