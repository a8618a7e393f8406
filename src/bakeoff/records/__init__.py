"""What runs leave behind: database, run directories, series, trajectories, provenance, tables.

| module | what it does |
|---|---|
| `edition`, `reader`, `results` | one edition in the database: writing, reading, and what goes in and out |
| `database`, `schema` | SQLite and PostgreSQL behind one face; the tables |
| `layout`, `find`, `rundir`, `logs` | where things lie; names that users type; a run's directory and its output |
| `lease`, `whole` | the right to write; files that are whole or not there |
| `series`, `trajectory` | per-step numbers and steps, compressed |
| `provenance`, `difference` | where results came from, and what differs between two editions |
| `table`, `overview`, `collect` | the table of runs; at a glance; as files |
| `importing`, `foreign`, `sweep`, `sweep_table` | results from elsewhere become an edition |
| `script` | `bakeoff.log` and `bakeoff.finish` in a user's own script |
| `remove` | deleting editions |
"""
