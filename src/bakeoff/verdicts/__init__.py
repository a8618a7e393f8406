"""Questions asked of a table of runs: which arm is better, how sure are we, how many runs would it take.

| module | question |
|---|---|
| `observations`, `reduce` | what was seen: one metric of every run, or a series as one number; runs that have none |
| `units` | which values are independent of each other, and what population they speak for |
| `arrays` | the values of those units, and the test that fits them |
| `compare` | better, worse, equivalent or undecided |
| `describe`, `wording` | numbers and words beside a verdict |
| `methods`, `explore`, `fairness` | other tests, other metrics, arms that should be alike: none of them votes |
| `gate` | did a metric regress by more than it may |
| `sequential`, `until_decided` | the same while runs are still added; where further runs come from |
| `prereg` | was it promised before the first result |
| `runlogs` | what runs logged, whole: every series and number |
| `sample`, `variance` | one arm on its own: how precise is its mean at N runs |
| `power`, `simulated` | how many runs an effect needs, and what the runs at hand can find |
| `litmus_rules`, `litmus` | rules with thresholds and evidence: confirmed, failed or inconclusive |
| `rank`, `passing`, `summarize` | many arms on many tasks; pass@k and pass^k; what each did, in one table |
"""
