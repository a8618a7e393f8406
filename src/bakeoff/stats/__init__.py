"""Pure numerics: arrays in, small frozen dataclasses out. No files, no tables, no printing.

Import from the module that answers the question (`from bakeoff.stats.choose import paired_test`), so that a command
loads only what it calls:

| question | module |
|---|---|
| is B better: one `Test` from plain arrays of any design | `choose` |
| ... for a family: `decide(tests)` gives `Decision`s; skew check; reasons | `decision` |
| what a `Test` and an `Interval` promise | `evidence`, `interval` |
| the tests themselves | `signflip`, `ttests`, `permutation`, `binary` |
| Holm, Benjamini-Hochberg | `multiplicity` |
| may we look early | `sequential` |
| how many runs, what effect can be seen, where to spend runs; success rates | `power`, `components`, `rates` |
| a run's series as one number | `curves` |
| bootstrap intervals; of clusters and tables; the engine | `bootstrap`, `bootstrap_tables`, `resample` |
| rank tests; many arms in order | `ranks`, `ranking` |
| effect sizes, what pairing bought; covariates | `effects`, `cuped` |
| rewards of a group relative to each other | `advantages` |
| one arm on many tasks: IQM, optimality gap, profiles, chance to beat another | `strata` |
| pass@k and pass^k | `passing` |
| what all of them stand on: checked vectors, special functions, random subsets | `vectors`, `special`, `subsets` |

Larger is better throughout: values of a metric to be minimised are negated before they come here. Everything random
takes an integer seed or a numpy Generator and is reproducible by default.
"""
