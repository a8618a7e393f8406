"""What our own runs leave behind: the database, run directories, series, trajectories and provenance.

| module | what it does |
|---|---|
| `edition` | writing an edition: its plan, its sessions, and what became of runs |
| `recorded` | reading it: what is on record, as records |
| `run` | `RunRecord`, the one declaration of a run's columns, `CellRecord`, `Attempt`; counts, failures and plain means |
| `claims` | attempts that other machines have, and the nodes that ran attempts |
| `looks` | who has seen results, and when: verdicts that were shown, growths of the plan |
| `lookup` | a run and its output by name; deleting an edition |
| `schema` | the tables |
| `store` | how statements reach SQLite and PostgreSQL safely: connections, transactions, reconnection, locks |
| `layout` | where things lie on disk, editions by name, the lease, atomic writes |
| `files` | opening and writing files of an edition without following a link; which file systems are shared |
| `damage` | checksums of rows and blocks, and what a damaged edition is called |
| `rundir` | a run's directory: `meta.json` and earlier attempts |
| `logs` | the curve of a run, from its `metrics.jsonl` and from the logs of other trainers |
| `series` | per-step numbers and trajectories, compressed |
| `transcript` | what was said in a run, from its trajectory |
| `secrets` | finding and replacing secrets in what is recorded |
| `packages`, `conditions` | what runs ran with, and where that differs between runs that are judged together |
| `provenance`, `diff` | where results came from, and what differs between two editions |
| `codefiles` | digests of code and configuration that git does not know, and of the code that a machine runs |
| `foreign_database` | SQLite databases of other tools, read only |
| `protobuf`, `event_files` | messages of protocol buffers; scalars in event files of TensorBoard |
| `script` | `bakeoff.log` and `bakeoff.finish` in a user's own script |

This is the only package that knows SQL.
"""
