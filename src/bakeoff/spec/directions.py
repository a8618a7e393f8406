"""Which way is better: names of metrics that do not say 'more is better' by themselves."""

from __future__ import annotations

import re

_TIMES = frozenset(("s", "ms", "us", "ns", "sec", "secs", "second", "seconds", "min", "mins", "minutes", "h", "hours"))
LESS_IS_BETTER = frozenset((
    # errors and distances
    "loss", "losses", "logloss", "xent", "ce", "perplexity", "ppl", "nll", "bpb", "bpc", "bpd", "kl", "kld", "divergence",
    "error", "errors", "err", "mse", "rmse", "nrmse", "rmsle", "mae", "mape", "smape", "mase", "crps", "brier", "ece", "mce",
    "wer", "cer", "ter", "der", "eer", "fpr", "fnr", "fid", "fvd", "kid", "lpips", "distance", "levenshtein", "regret", "gap",
    "residual", "residuals", "rank", "div", "hamming", "deviation", "surprisal", "wrong", "incorrect", "misclassification",
    # what should not happen
    "failures", "failed", "violations", "violation", "timeouts", "crashes", "collisions", "misses", "mistakes", "bugs",
    "toxicity", "hallucination", "hallucinations", "penalty", "penalties", "drawdown", "retries", "regressions", "complaints",
    "rejections", "volatility", "jitter", "lag", "ping", "emissions", "co2",
    # what is spent
    "cost", "costs", "price", "prices", "usd", "eur", "dollars", "cents", "spend", "spent", "used", "usage", "consumed", "overhead", "flops",
    "vram", "rss", "bytes", "kb", "mb", "gb", "kib", "mib", "gib", "energy", "joules", "kwh", "watts",
    "latency", "ttft", "tpot", "itl", "time", "times", "elapsed", "duration", "runtime", "walltime", "wallclock", "clock",
    "makespan", "delay", "wait", "waiting", "slowdown",
    *(_TIMES - {"min", "h", "second"}),
))  # fmt: skip
"""Last words of metrics of which less is usually better, or of which nobody could say."""
_RATES = frozenset((
    "error", "err", "failure", "miss", "mistake", "wrong", "crash", "timeout", "violation", "collision", "hallucination", "toxicity",
    "abort", "defect", "bug", "harmful", "jailbreak", "churn", "bounce",
))  # fmt: skip
_BAD_SCORES = frozenset(("brier", "toxicity", "fid", "ece", "crps", "error", "hallucination", "penalty"))
_ENDINGS = (
    ("cross", "entropy"),
    ("log", "likelihood"),
    ("false", "positives"),
    ("false", "negatives"),
    ("false", "alarms"),
    ("peak", "memory"),
    ("gpu", "memory"),
    ("max", "memory"),
)
_RATIOS = frozenset(("throughput", "speed", "speedup", "bandwidth", "goodput", "reciprocal", "saved", "reduction"))
"""Words after which more is better, whatever unit follows: `throughput_mb_s`, `mean_reciprocal_rank`."""
_COUNTED = frozenset((
    "tokens", "token", "tok", "toks", "samples", "steps", "it", "iter", "iters", "requests", "req", "reqs", "frames", "images",
    "episodes", "queries", "words", "ops", "tasks", "jobs", "kb", "mb", "gb",
))  # fmt: skip
"""What is counted in rates such as `tokens_s`."""
_QUALIFIERS = re.compile(
    r"p\d+|mean|avg|average|median|max|min|total|sum|train|val|valid|validation|eval|test|dev|heldout"
)
"""Last words that say which statistic or which split, and not what was measured."""
_MORE_IS_BETTER = frozenset(
    ("score", "reward", "success", "correct", "accuracy", "acc", "return", "solved", "passed", "f1")
)


def words_of(name: str) -> list[str]:
    """The words of a name in small letters: `trainEpoch`, `train-epoch` and `Train Epoch` have the same two."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return [word for word in re.split(r"[\W_]+", parts.lower()) if word]


def suggests_less(metric: str) -> bool:
    """Whether a metric's name says that less is better, such as `val_loss`, `latency_p95_ms` or `error_rate`.

    Of `A per B` it is A that counts: more `tokens_per_s` is better, and fewer `bits_per_byte`. A percentile without
    anything that it is of (`p95`) is usually a latency.
    """
    words = _measured(metric)
    if not words or _RATIOS & set(words):
        return False
    if "per" in words[1:]:
        words = words[: words.index("per")]
        return words[-1] in LESS_IS_BETTER - _COUNTED or words[-1] == "bits"
    if words[0] in ("time", "steps", "samples", "epochs", "iterations") and "to" in words[1:2]:
        return True
    if words[-1] in ("rate", "share", "fraction", "ratio", "pct", "percent"):
        if words[-2:-1] in (["positive"], ["negative"]):
            return words[-3:-2] == ["false"]
        return words[-2:-1] != [] and (words[-2] in _RATES or words[-2].removesuffix("s") in _RATES)
    if words[-1] in ("score", "count") and len(words) > 1:
        return words[-2] in (_BAD_SCORES if words[-1] == "score" else _RATES)
    if words[-1] in _TIMES and words[-2:-1] != [] and words[-2] in _COUNTED:
        return False
    if tuple(words[-2:]) in _ENDINGS:
        return words[-1] != "likelihood" or bool({"neg", "negative"} & set(words))
    return words[-1] in LESS_IS_BETTER or re.fullmatch(r"p\d\d+", words[-1]) is not None


def suggests_more(metric: str) -> bool:
    """Whether a metric's name says that more is better, such as `val_accuracy`."""
    words = _measured(metric)
    return bool(words) and words[-1] in _MORE_IS_BETTER and not suggests_less(metric)


def _measured(metric: str) -> list[str]:
    words = words_of(metric)
    while len(words) > 1 and _QUALIFIERS.fullmatch(words[-1]):
        words.pop()
    return words
