"""What our own runs leave behind: the database, run directories, series, trajectories and provenance.

| module | what it does |
|---|---|
| `edition` | one edition in the database: writing, reading, finding a run by name, deleting |
| `run` | `RunRecord`, `CellRecord`, `Attempt`; metrics as text |
| `database` | the tables; SQLite and PostgreSQL behind one interface |
| `layout` | where things lie on disk, editions by name, atomic writes |
| `rundir` | a run's directory: `meta.json`, earlier attempts, output |
| `lease` | the right to write |
| `series` | per-step numbers and trajectories, compressed |
| `overview` | an edition at a glance: counts, failures, plain means |
| `provenance`, `diff` | where results came from, and what differs between two editions |
| `script` | `bakeoff.log` and `bakeoff.finish` in a user's own script |

This is the only package that knows SQL.
"""
