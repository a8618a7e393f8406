"""Trajectories as training data in other people's formats.

| module | what it does |
|---|---|
| `rollouts` | the recorded trajectories of an edition, each with its reward and its group |
| `selection` | which of them are wanted, and why the others are not |
| `dialogue` | a trajectory as conversations: what the model read and what it wrote |
| `forms` | the formats by name |
| `steps`, `trl`, `art`, `verifiers`, `sharegpt`, `atif` | one module writes each family of them |
| `exporting`, `job` | select, write, summarise; one export under way |
"""
