"""Pure numerics: arrays in, small frozen dataclasses out.

No files, no tables, no printing, nothing else of bakeoff. Import from the module that answers the question
(`from bakeoff.stats.decision import paired_test`), so that a command loads only what it calls:

| question | module |
|---|---|
| is B better: a `Test` from arrays of any design, `decide` for a family, Holm, Benjamini-Hochberg | `decision` |
| what a `Test`, an `Evidence` and an `Interval` promise | `evidence` |
| the tests: t; sign flips and permutations; outcomes 0 or 1 | `ttests`, `permutation`, `binary` |
| centres that a few extreme values cannot move: signed ranks, rank sums, trimmed means | `robust` |
| tables of tasks and seeds with absent cells | `incomplete` |
| are numbered repeats rows of one curve | `serial` |
| which of many replicates reject, for simulations | `many` |
| may I look early: e-processes, confidence sequences, stopping | `sequential` |
| how many runs, what effect can be detected, how to divide runs; the power of the tests that decide | `power`, `detection` |
| plans from noise that earlier runs have estimated; tasks and seeds that are both samples | `plans` |
| a run's series as one number | `curves` |
| bootstrap intervals of samples, clusters and tables; how resamples are drawn fast | `bootstrap`, `resample` |
| one arm on many tasks: IQM, optimality gap, profile, chance to beat another, pass@k | `aggregates` |
| rank tests; many arms in order: Friedman, Nemenyi, Bradley-Terry | `ranks` |
| effect sizes, what pairing gained, covariates (CUPED), group-relative rewards | `effects` |
| checked input, moments, distribution functions | `numerics` |

Larger is better throughout: values of a metric to be minimised are negated before they come here.
Everything random takes an integer seed or a numpy Generator and is reproducible by default. Docstrings name
the population an answer speaks for and the source of its formula.
"""
