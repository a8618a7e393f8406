"""Anything that can be asked about, as one table: our own editions and other tools' results.

| module | what it does |
|---|---|
| `table` | `Row` (one run) and `Results` (all runs, with how they are to be judged) |
| `editions` | one of our editions, or arms of several side by side, as `Results` |
| `sources` | names on a command line as `Results`: finds out what they mean |
| `importers` | one module for each foreign format, found by sniffing |
| `reading` | the reading line: how other tools' runs were read |
| `importing` | `bakeoff import`: foreign results become one of our editions |
| `summaries` | a series becomes one number |
| `columns` | `Sheet` and `Column`: plain tables over numpy, before they are runs |
| `frame` | an edition as a table, and the files that `bakeoff collect` writes |
"""
