"""The `language` workload: reinforcement learning of small language models on verifiable tasks.

| module | what is in it |
|---|---|
| `params` | the parameters of a run |
| `workload` | the interface to the rest of bakeoff |
| `tasks` | prompts, verifiers, vocabulary and plans of the tasks |
| `model` | a small GPT, sampling and the optimizer |
| `pretrained` | models of Hugging Face, and tasks in their tokens |
| `pretrain` | warm starts, and their cache |
| `advantages`, `transforms`, `planning` | what each token is trained with: the formulas |
| `backpressure` | the batch size, if it follows throughput |
| `trainer` | one training, step by step |
| `outputs` | the files of a run, and its checkpoint |
| `tracking` | runs in Weights & Biases |
| `pages` | the page in reports |
| `campaign` | retrain's campaign files as experiments |
| `starter` | the example of `bakeoff init` |
| `verbs`, `command` | `bakeoff language` on the command line |
"""
