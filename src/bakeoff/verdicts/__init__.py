"""From results to verdicts: one function takes a results table and a question and gives an answer.

| module | what it does |
|---|---|
| `question` | what can be asked, written down once: options, keywords, `[analysis]` and settings come from it |
| `answer` | `answer(results, question)`, and the structure that every answer has |
| `render` | an answer as text, Markdown, CSV, JSON and HTML |
| `observations` | one metric of every run; a series becomes one number |
| `design`, `testing` | which values are independent and for whom they speak; the test that they get |
| `compare`, `describe`, `methods`, `wording` | verdicts, the numbers beside them, other methods, the sentences |
| `compare_answer`, `gate`, `litmus`, `rank`, `passing`, `summarize` | the questions about results at hand |
| `variance`, `power`, `simulation` | the questions about how many runs are enough |
| `sequential`, `until_decided` | anytime-valid tests, and runs that stop when they have decided |
| `prereg` | what was registered before the first result |
"""
