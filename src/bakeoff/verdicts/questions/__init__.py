"""One module for each question, named like it; `verdicts.answer.answer` calls the module's `answer(results, question)`.

| module | what it does |
|---|---|
| `compare` | which arms are better, worse or equivalent |
| `gate` | may this change be merged |
| `rank` | all arms in order |
| `litmus` | does every rule of a file hold |
| `summarize` | what was run, without a verdict |
| `variance`, `power`, `planning` | how many runs are enough |
| `calibrate`, `relabel` | how often runs like these lead to a wrong verdict; experiments without an effect, made from them |
| `retries` | tries that do not count, by arm, and warnings about them |
"""
