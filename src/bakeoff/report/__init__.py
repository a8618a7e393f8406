"""What results look like: one description of each plot, drawn as PNG, SVG or an interactive page.

| module | what it does |
|---|---|
| figure | the description: panels, and what is drawn in them |
| plots | each kind of plot, from plain arrays |
| from_edition | each kind of plot, from an edition's results |
| style | colours, fonts and sizes, the same everywhere |
| static, interactive | drawing: PNG and SVG; HTML that needs no network |
| write | a figure becomes a file, by its ending |
| text | numbers, durations and words from outside, as people read them |
| site | the static report: a folder of pages |
"""
