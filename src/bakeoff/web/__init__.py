"""Pictures and pages: plots, and one set of pages that a folder holds or a server shows.

| module | what it does |
|---|---|
| `figure`, `svg` | a plot as data, and how it is drawn |
| `drawing` | plots as files (PNG, SVG, CSV, HTML) and as parts of a page |
| `arms`, `comparisons` | the figures themselves, by what they show |
| `pictures` | which figures there are: `bakeoff plot KIND`, and those of a report's front page |
| `contents` | results read once, and what a report says about them beside pictures |
| `page` | a page as a template and a function that collects what it shows; what a workload may add |
| `front` | the front page, section by section |
| `outcomes`, `matrix` | how runs ended task by task: the matrix of tasks and arms, and disagreements side by side |
| `curves` | the page of curves, with other axes and a zoom |
| `runs`, `run`, `ansi` | the table of runs, and what is known about one; colours of a terminal |
| `data` | values for the scripts on pages, as script files |
| `site`, `folder` | all pages about one set of results, and the folder that they are written into |
| `live` | the same pages served while runs end: counts and rows that follow the records |

HTML is written by the Jinja templates in `templates/`; those of answers are in `verdicts/templates/`. `static/` has the
style sheet and the scripts of pages. Scripts format no number: texts come from `text.py`.
"""
