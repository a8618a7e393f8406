"""Other people's formats, in: whatever names a user gives becomes a `Source`, and a source gives `Observations`.

| module | reads |
|---|---|
| `sources` | names on a command line: finds out which of the others they mean |
| `editions` | our own editions, and arms across experiments |
| `tables` | CSV, Parquet and JSONL, one row for each run or for each step of a run |
| `directories` | run directories with `metrics.jsonl`, and training campaigns |
| `wandb_runs` | W&B runs: offline files, and runs on a server |
| `asking` | a source and what is asked of it become an answer |
| `source` | what every source can do, and the one made of logged runs |

The way out is in `export`: trajectories as training data.
"""
