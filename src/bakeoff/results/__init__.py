"""Anything that can be asked about, as one table: our own editions and other tools' results.

| module | what it does |
|---|---|
| `table` | `Row` (one run) and `Results` (all runs, with how they are to be judged) |
| `editions` | one of our editions, or arms of several side by side, as `Results` |
| `experiment_file` | the newest edition of an experiment file, judged by the file as it is now |
| `sources` | names on a command line as `Results`: finds out what they mean |
| `importers` | one module for each foreign format, found by sniffing |
| `reading` | the reading line: how other tools' runs were read |
| `importing` | `bakeoff import`: foreign results become one of our editions |
| `frame` | an edition as a Polars frame, and the files that `bakeoff collect` writes |
"""
