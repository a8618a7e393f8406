"""From results to verdicts: one function takes a results table and a question and gives an answer.

| module | what it does |
|---|---|
| `question` | what can be asked, written down once: options, keywords, `[analysis]` and settings come from it |
| `answer` | `answer(results, question)`, the structure that every answer has, and the five ways to show it |
| `observations` | one metric of every run; a series becomes one number |
| `design`, `testing` | which values are independent and for whom they speak; the test that they get, and other tests |
| `compare`, `describe` | verdicts, and the numbers and sentences beside them |
| `compare_answer`, `gate`, `litmus`, `rank`, `summarize` | the questions about results at hand |
| `retries` | tries that do not count, by arm, and warnings about them |
| `variance`, `power`, `pilot` | the questions about how many runs are enough |
| `looks` | who has seen results before, and what that leaves for a verdict on a plan that has grown |
| `eprocess` | differences in the order of planning, and the evidence in them after each |
| `race` | many arms in a sequential test: losers leave, the last one is the best |
| `combined` | all editions of one experiment together |
| `calibrate`, `relabel` | how often runs like these lead to a wrong verdict; experiments without an effect, made from them |
| `sequential`, `until_decided` | anytime-valid tests, and runs that stop when they have decided |
| `prereg` | what was registered before the first result |
"""
