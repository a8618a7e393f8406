"""The static report of an edition: a folder of pages that opens from the file system and needs no network.

| module | what it does |
|---|---|
| `contents` | an edition read once: what was run, what came of it, under which names |
| `summary` | what was run, when, by which code, and what failed |
| `answers` | verdicts and ablations, or the reason why there are none |
| `pictures` | the figures of the report, or the reason why one is missing |
| `policies` | the three pictures of a scheduling sweep |
| `inline` | a figure as HTML that follows the reader's colours |
| `details`, `chunks` | what the run pages show, within a budget of bytes; data as scripts |
| `page` | pages that workloads add |
| `folder` | all of it becomes files |
"""
