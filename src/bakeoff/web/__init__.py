"""Pictures and pages: plots, and the report as a folder of HTML that opens without a network.

| module | what it does |
|---|---|
| `figure`, `svg` | a plot as data, and how it is drawn |
| `drawing` | plots as files (PNG, SVG, HTML) and as parts of a page |
| `arms`, `comparisons` | the figures themselves, by what they show |
| `pictures` | which figures there are: `bakeoff plot KIND`, and those of a report's front page |
| `contents`, `runs` | what a report says beside pictures: the edition read once, the front page, data of runs |
| `folder` | the report folder, and pages that workloads add to it |

HTML is written by the Jinja templates in `templates/`; those of answers are in `verdicts/templates/`.
"""
