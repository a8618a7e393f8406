"""From results to verdicts: one function takes a results table and a question and gives an answer.

| module | what it does |
|---|---|
| `question` | what can be asked, written down once: options, keywords, `[analysis]` and settings come from it |
| `answer` | `answer(results, question)`, the structure that every answer has, and the five ways to show it |
| `observations` | one metric of every run; a series becomes one number |
| `repeats`, `shared_repeats` | numbered repeats that are rows of one curve, or one run on every task, are refused |
| `plausibility` | notes about values that are probably not what they seem |
| `designs` | which values are independent, for whom they speak, and the test that they get: one class for each design |
| `testing` | the test of one comparison at both ends of missing runs, and other tests that can be asked for |
| `family` | which comparisons share one alpha, and how often an analysis was changed after a look |
| `compare`, `describe` | verdicts, and the numbers and sentences beside them |
| `screen` | the first screen of a comparison: the arms in one ranked table, and what to do next |
| `compare_answer`, `gate`, `litmus`, `rank`, `summarize` | the questions about results at hand |
| `caveats` | who wrote the values of a metric, and how much of them is estimated |
| `retries` | tries that do not count, by arm, and warnings about them |
| `variance`, `power`, `planning` | the questions about how many runs are enough |
| `looks` | who has seen results before, and what that leaves for a verdict on a plan that has grown |
| `eprocess` | the evidence in differences, after each in the order of planning |
| `race` | many arms in a sequential test: losers leave, the last one is the best |
| `combined` | all editions of one experiment together |
| `calibrate`, `relabel` | how often runs like these lead to a wrong verdict; experiments without an effect, made from them |
| `sequential`, `until_decided` | anytime-valid tests, and runs that stop when they have decided |
| `prereg` | what was registered before the first result |
"""
