"""From results to verdicts: one function takes a results table and a question and gives an answer.

| module | what it does |
|---|---|
| `question` | what can be asked, written down once: options, keywords, `[analysis]` and settings come from it |
| `answer` | `answer(results, question)`, the structure that every answer has, and the five ways to show it |
| `observations` | one metric of every run, and what limits it: who wrote its values, how much is estimated; a series becomes one number |
| `repeats` | repeats and seeds that are rows of one curve, one run on every task, ranks or copies are refused |
| `plausibility` | notes about values that are probably not what they seem |
| `family` | which comparisons share one alpha, and how often an analysis was changed after a look |
| `comparison`, `describe` | verdicts, and the numbers and sentences beside them |
| `ranking_table` | the first screen of a comparison: the arms in one ranked table, and what to do next |
| `certificate` | rows, question and decisions of a comparison in one file that others can verify |
| `designs` | which values are independent, for whom they speak, and the test that they get: one class for each design |
| `questions` | one module for each question |
| `sequential` | results that are looked at more than once |
"""
