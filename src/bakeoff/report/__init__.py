"""What results look like: one description of each plot, drawn as PNG, SVG or an interactive page.

| module | what it does |
|---|---|
| `figure`, `style` | the description: panels, and what is drawn in them; one look for all |
| `learning`, `differences`, `spread`, `forest`, `tradeoff`, `ranking`, `planning`, `evidence` | the kinds of plots, each from plain values |
| `from_edition`, `plots` | each kind from an edition's results, and from a verb's answer |
| `static`, `interactive` | drawing: PNG and SVG; HTML that needs no network |
| `write` | a figure becomes a file, by its ending |
| `text` | numbers, durations and words from outside, as people read them |
| `site` | the static report: a folder of pages |
"""
