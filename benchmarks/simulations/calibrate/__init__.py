"""Calibration: run `compare` on tables of simulated runs and count its verdicts.

| module | what it has |
|---|---|
| laws | distributions of scores: worlds that arms share, and runs in them |
| cells | every line of the table: what is simulated, what is counted, which bound it must meet |
| table | makes a table of runs from simulated values, and a verdict from the table |
| peers | other analyses of the same numbers, for reference |
| habits | choosing after a look, groups of tasks, epochs, copies |
| looking | tests that look after every pair |
| pooled | steps and generations of all seeds pooled, as a training campaign's analysis did it |
| count | runs replicates in parallel; the numbers do not depend on the number of processes |
| page | writes the result as Markdown and draws the figure |
"""
