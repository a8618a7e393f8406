"""Questions asked of a table of runs: which arm is better, how sure are we, how many runs would it take.

| module | question |
|---|---|
| observations | what was seen: one metric of every run, and what became of the runs that have none |
| units | which values are independent of each other, and what population they speak for |
| compare | better, worse, equivalent or undecided |
| sequential, until_decided | the same while runs are still added; where further runs come from |
| prereg | was it promised before the first result |
| runlogs | what runs logged, whole: every series and number |
| sample, variance | one arm on its own: how precise is its mean at N runs |
| power, simulated | how many runs an effect needs, and what the runs at hand can find |
| litmus_rules, litmus | rules with thresholds and evidence: confirmed, failed or inconclusive |
| rank, passing | many arms on many tasks; pass@k and pass^k |
"""
