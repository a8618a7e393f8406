"""Pictures and pages: plots, and the report as a folder of HTML that opens without a network.

| module | what it does |
|---|---|
| `figure`, `drawing` | a plot as data, and how it becomes PNG, SVG, HTML or a part of a page |
| `arms`, `comparisons`, `planning`, `ranking` | the figures themselves, by what they show |
| `kinds` | `bakeoff plot KIND`: each kind of figure from results |
| `contents`, `ablations`, `pictures`, `runs` | what the report shows: front page, ablations, pictures, data of runs |
| `folder` | the report folder, and pages that workloads add to it |

HTML is written by the Jinja templates in `templates/`; those of answers are in `verdicts/templates/`.
"""
