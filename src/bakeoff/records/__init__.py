"""What our own runs leave behind: the database, run directories, series, trajectories and provenance.

| module | what it does |
|---|---|
| `edition` | one edition in the database: writing and reading |
| `run` | `RunRecord`, `CellRecord`, `Attempt`; metrics as text; counts, failures and plain means |
| `claims` | attempts that other machines have, and the nodes that ran attempts |
| `looks` | who has seen results, and when: verdicts that were shown, growths of the plan |
| `lookup` | a run and its output by name; deleting an edition |
| `database` | the tables; SQLite and PostgreSQL behind one interface |
| `layout` | where things lie on disk, editions by name, the lease, atomic writes |
| `files` | opening and writing files of an edition without following a link; which file systems are shared |
| `damage` | checksums of rows and blocks, and what a damaged edition is called |
| `rundir` | a run's directory: `meta.json` and earlier attempts |
| `logs` | the curve of a run, from its `metrics.jsonl` and from the logs of other trainers |
| `series` | per-step numbers and trajectories, compressed |
| `secrets` | finding and replacing secrets in what is recorded |
| `provenance`, `diff` | where results came from, and what differs between two editions |
| `script` | `bakeoff.log` and `bakeoff.finish` in a user's own script |

This is the only package that knows SQL.
"""
