"""Pages that are served while runs end: `bakeoff view`.

| module | what it does |
|---|---|
| `watch` | an edition whose counts and rows are kept up to date by what changed |
| `rows` | the table of runs: filters, orders and windows |
| `places` | which editions and results there are, by address |
| `views` | what a page shows; `templates/` makes HTML of it |
| `feed` | the stream of events that names the parts of a page which changed |
| `renderer` | the process that makes what takes statistics: verdicts and pages of a report |
| `guard` | which requests are refused |
| `server` | which address shows what |
"""
