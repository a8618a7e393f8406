"""Calibration: tables of simulated runs go through `compare`, and what it decides is counted.

| module | what it has |
|---|---|
| laws | what runs score: worlds that arms share, and runs in them |
| cells | every line of the table: what is simulated, what is counted, which bound it must meet |
| table | simulated values become a table of runs, and the table a verdict |
| peers | other analyses of the same numbers, for reference |
| looking | tests that are looked at after every pair |
| pooled | steps and generations of all seeds in one pot, as a training campaign's analysis had it |
| count | replicates in parallel, the same numbers whatever the number of processes |
| page | the result as Markdown, and the figure |
"""
