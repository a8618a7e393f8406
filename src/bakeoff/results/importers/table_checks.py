"""What a table must not be judged with: unused identifiers, counters, runs that nothing names, and copied rows.

Each check raises a UsageError that says which column it is about and which flag says what it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bakeoff.errors import UsageError
from bakeoff.results.importers.table_roles import ROLE_NAMES, VALUES, Columns, Steps, counts_rows
from bakeoff.spec.directions import words_of

if TYPE_CHECKING:
    import polars as pl

IDENTIFIER = re.compile(
    r"(^|[_\W])(id|idx|index|item|question|prompt|hash|fold|example|sample|case|instance|uuid|key|row)s?$",
    re.IGNORECASE,
)
"""Names that identifiers usually have."""
RUN_NAME = re.compile(r"(.*\w)[\s_.:/#-]+(?:seed|run|rep|replicate|trial|s)[\s_=-]*\d+", re.IGNORECASE)
"""Names of arms that end with the number of a run."""
RUN_WORDS = ("run", "checkpoint", "ckpt", "weights", "adapter", "trial")
"""Words in names of columns that hold trained runs, beside `model_path` and the like."""
_DATE_WORDS = frozenset(("date", "day", "time", "timestamp", "created", "started", "ended", "finished"))
ERROR_WORDS = ("error", "errors", "exception", "exceptions", "traceback", "failure", "err")
TASK_PREFIX = "task-prefix"
"""What groups of tasks that only names tell are called in place of a column."""
STEP_LABEL = re.compile(
    r"(?:.*[\W_])?(?:ep|epoch|step|steps|global_step|iter|iteration|it|ckpt|checkpoint|update|gen|generation)[\W_]*\d+"
    r"(?:\.\w+)?|\d{4}-\d\d-\d\d(?:[T ].*)?|\d+(?:\.\d+)?[km]",
    re.IGNORECASE,
)
"""Text that names a point in a training or in time: `ep3`, `step_1000`, `checkpoint-500.pt`, `2026-05-01`, `10k`."""
MAX_REPEATED = 0.1
"""Share of rows up to which a step may stand twice in one run, as it does after a restart."""


def refuse_identifiers(
    frame: pl.DataFrame, label: str, roles: Mapping[str, str], columns: Columns, also_keys: Sequence[str]
) -> None:
    """Raise UsageError for a column that nobody uses and that tells rows of one arm, task and seed apart.

    Averaging over such a column, or pairing without it, treats repeated measurements of one thing as independent. A
    column looks like an identifier when every arm has the same values equally often, or when its name says so and the
    arms share most of its values. A score that happens to take few values differs in how often it takes them. A column
    that counts the rows of every run up may count repeats or steps.
    """
    import polars as pl

    groups = [*(roles[role] for role in ("arm", "task", "seed", "step") if role in roles), *also_keys]
    runs = [*(roles[role] for role in ("arm", "task", "seed", "rollout") if role in roles), *also_keys]
    unused = [
        name
        for name in frame.columns
        if name not in (*roles.values(), *also_keys, *columns.ignore) and name.strip().lower() not in VALUES
    ]
    identifiers = []
    for name in unused:
        kind = frame.schema[name]
        if (kind == pl.String or kind.is_integer() or kind == pl.Categorical) and _identifies(
            frame, name, roles, groups
        ):
            identifiers.append(name)
        elif kind.is_numeric() and "step" not in roles and counts_rows(frame, name, runs):
            flag = shlex.quote(name)
            seed = f"--seed-from {flag} if it is the seed, " if "seed" not in roles else ""
            raise UsageError(
                f"{label}: column {name!r} counts the rows of every run up. Say --step-from {flag} if rows are steps of "
                f"one run, {seed}--rollout-from {flag} if they are independent repeats, or --ignore {flag}"
            )
    if identifiers:
        raise UsageError(f"{label}: {_what_it_could_be(frame, identifiers, roles, runs)}")


def _identifies(frame: pl.DataFrame, name: str, roles: Mapping[str, str], groups: Sequence[str]) -> bool:
    """Whether a column looks like an identifier that tells rows of one group apart."""
    import polars as pl

    if not frame.group_by(groups).agg(pl.col(name).n_unique())[name].gt(1).any():
        return False
    if "rollout" in roles and frame.select(name, roles["rollout"]).n_unique() == frame[roles["rollout"]].n_unique():
        return False  # it numbers the same rows as a column that is used
    counts = frame.drop_nulls(name).group_by(name, roles["arm"]).len()
    arms = counts[roles["arm"]].n_unique()
    # Every arm has each value equally often, such as 10 attempts of one arm and 5 of another at each question.
    even = bool((counts.group_by(roles["arm"]).agg(pl.col("len").n_unique())["len"] == 1).all())
    by_value = counts.group_by(name).agg(
        everywhere=pl.len() == arms, equal=(pl.len() == arms) & (pl.col("len").n_unique() == 1)
    )
    shared, equal = (by_value[part].sum() / max(1, by_value.height) for part in ("everywhere", "equal"))
    named = _is_named_identifier(name)
    looks = arms > 1 and by_value.height >= 3 and (equal >= 0.8 or (even and shared >= 0.8))
    return looks or (named and by_value.height >= 2 and shared >= 0.5)


def _is_named_identifier(name: str) -> bool:
    return IDENTIFIER.search("_".join(words_of(name))) is not None or name.strip().lower() in ROLE_NAMES


def refuse_grouped_seeds(
    frame: pl.DataFrame, label: str, roles: Mapping[str, str], columns: Columns, notes: list[str]
) -> None:
    """Raise UsageError where no column is the task, and one that nobody uses has several seeds for each of its values.

    Seeds 0 to 7 of question 1, 8 to 15 of question 2 and so on are 8 runs of each question, and no seed tells rows of one
    question apart: with the seed as the unit, 39 % of tables without an effect get a verdict (20 questions of 8 seeds, equal
    variances). A name of an identifier, or equally many seeds for each of 3 values or more, is refused; anything else is a note.
    """
    import polars as pl

    if "task" in roles or "seed" not in roles or "step" in roles:
        return
    seed, arm = roles["seed"], roles["arm"]
    for name, kind in frame.schema.items():
        if name in (*roles.values(), *columns.ignore) or name.strip().lower() in VALUES:
            continue
        if not (kind == pl.String or kind.is_integer() or kind == pl.Categorical):
            continue
        pairs = frame.select(seed, name).drop_nulls().unique()
        sizes = pairs.group_by(name).len()["len"]
        seeds, shared = pairs[seed].n_unique(), frame.group_by(name).agg(pl.col(arm).n_unique() > 1)[arm].mean()
        if pairs.height != seeds or not 1 < sizes.len() < seeds or not isinstance(shared, float) or shared < 0.8:
            continue
        flag = shlex.quote(name)
        what = f"seeds fall into {sizes.len()} groups by column {name!r}, and the arms share the groups"
        even = sizes.len() >= 3 and sizes.n_unique() == 1 and not _DATE_WORDS & set(words_of(name))
        if _is_named_identifier(name) or even:
            raise UsageError(
                f"{label}: {what}, as runs of one task do. Say --task-from {flag} if it is the task, or --ignore {flag} if "
                "seeds of one group have nothing in common"
            )
        if kind == pl.String:
            notes.append(
                f"{what}: if seeds of one group have something in common, false verdicts are more frequent than alpha; "
                f"--task-from {flag} takes it as the task, --ignore {flag} removes this line"
            )


def _what_it_could_be(
    frame: pl.DataFrame, identifiers: Sequence[str], roles: Mapping[str, str], runs: Sequence[str]
) -> str:
    """Every flag that makes sense for identifiers that nobody uses.

    A column that only numbers rows inside another identifier is never proposed as the task: repeats of one question
    would count as questions of their own.
    """
    name = min(identifiers, key=lambda column: frame[column].n_unique())
    flag = shlex.quote(name)
    levels = f"{frame[name].drop_nulls().n_unique()} values that the arms share"
    finer = next((other for other in identifiers if other != name and refines(frame, other, name)), None)
    if "task" not in roles and finer is not None:
        inner = shlex.quote(finer)
        return (
            f"columns {name!r} ({levels}) and {finer!r} look like identifiers, and {finer!r} has several values for each "
            f"{name!r}. Say --task-from {flag} --rollout-from {inner} if rows of one {name!r} are repeats, or --task-from "
            f"{inner} --cluster {flag} if they are different tasks of one group"
        )
    if "step" not in roles and _holds_step_labels(frame, name):
        return (
            f"column {name!r} ({levels}) holds text such as {str(frame[name].drop_nulls()[0])!r}. If rows are steps of one run, "
            f"write their numbers there and say --step-from {flag}, or keep the last row of each run; say --rollout-from "
            f"{flag} if they are independent repeats, or --ignore {flag} if rows that differ only in it are independent runs"
        )
    # An identifier of numbers that count up may be a step, however the rows of the file are sorted.
    counter = "step" not in roles and frame.schema[name].is_numeric() and counts_rows(frame.sort(name), name, runs)
    # Seeds count up too, and where they recur over tasks they are never independent repeats.
    places = ["seed"] if (counter and not _is_named_identifier(name)) or "seed" in words_of(name) else ["task", "seed"]
    one_task = "task" in roles and frame[roles["task"]].n_unique() == 1  # the name of a benchmark
    roles_left = [
        role
        for role in (*places, "rollout", *(["step"] if counter else []))
        if role not in roles or (role == "task" and one_task)
    ]
    ways = [f"--{role}-from {flag}" for role in roles_left]
    named = f"{', '.join(ways[:-1])} or {ways[-1]}, or " if len(ways) > 1 else f"{ways[0]}, or " if ways else ""
    return (
        f"column {name!r} looks like an identifier ({levels}) and nothing says what it is. Say {named}--ignore {flag} if "
        "rows that differ only in it are independent runs"
    )


def _holds_step_labels(frame: pl.DataFrame, name: str) -> bool:
    """Whether every text in a column names a step or a date."""
    import polars as pl

    if frame.schema[name] not in (pl.String, pl.Categorical):
        return False
    return all(STEP_LABEL.fullmatch(str(value).strip()) for value in frame[name].drop_nulls().unique().to_list())


def refines(frame: pl.DataFrame, finer: str, coarser: str) -> bool:
    """Whether each value of `finer` belongs to one value of `coarser`, which has fewer."""
    known = frame.select(finer, coarser).drop_nulls().unique()
    return known.height == known[finer].n_unique() > known[coarser].n_unique() > 1


def refuse_repeated_steps(frame: pl.DataFrame, label: str, steps: Steps, keys: Sequence[str], notes: list[str]) -> None:
    """Raise UsageError where steps stand several times in one run; a few, as after a restart, are a note."""
    if steps.column is None:
        return
    repeated = frame.height - frame.select(*keys, steps.column).n_unique()
    if repeated > MAX_REPEATED * frame.height:
        raise UsageError(
            f"{label}: {repeated} of {frame.height} rows repeat a step ({steps.column!r}) of their run, so something else "
            "tells them apart. Name it (--task-from, --seed-from, --rollout-from), or name another --step-from"
        )
    if repeated:
        notes.append(f"{repeated} rows repeat a step of their run; the later one counts")


def refuse_runs(frame: pl.DataFrame, label: str, roles: Mapping[str, str], columns: Columns, notes: list[str]) -> None:
    """Raise UsageError for a column whose values belong to one arm each and stand on several tasks: it names runs.

    Rows of one trained run are not independent, so tasks or rows cannot be the units. Where every arm has one such run,
    the verdict is about these runs only, and a note says so.
    """
    import polars as pl

    arm = roles["arm"]
    inside = [roles[role] for role in ("task", "seed") if role in roles]
    for name, kind in frame.schema.items():
        if name in (*roles.values(), *columns.ignore) or not (
            kind == pl.String or kind.is_integer() or kind == pl.Categorical
        ):
            continue
        if kind.is_integer() and name.strip().lower() in VALUES:
            continue
        named = _names_runs(name)
        known = frame.drop_nulls(name)  # an arm without training may have no checkpoint
        if known.height == 0 or (known.height < frame.height and not named):
            continue
        runs = known.group_by(name).agg(
            arms=pl.col(arm).n_unique(),
            places=pl.struct(inside).n_unique() if inside else pl.len(),
            arm=pl.col(arm).first(),
        )
        if not bool((runs["arms"] == 1).all()) or int((runs["places"] > 1).sum()) < 0.8 * runs.height:
            continue
        if not inside and not named and not _evenly_repeated(known, name):
            continue
        several = int(runs.group_by("arm").len()["len"].max() or 0) > 1  # type: ignore[arg-type]
        if not several:
            if named and "seed" not in roles and runs.height > 1:
                notes.append(
                    f"each arm is one {name} ({', '.join(map(str, sorted(runs[name].to_list())[:3]))}): the verdict is about "
                    "these runs only, not about others that were trained alike"
                )
            continue
        apart = known.group_by(arm, *inside).agg(pl.col(name).n_unique())[name].gt(1).any()
        if "seed" in roles and not apart:
            continue  # seeds tell the runs apart, and are their names
        flag = shlex.quote(name)
        filled = "fill in its empty cells and " if known.height < frame.height else ""
        raise UsageError(
            f"{label}: column {name!r} names runs: each of its {runs.height} values belongs to one arm and stands on "
            f"several rows, so rows of one run are not independent. To compare the means of runs (an arm needs 3), {filled}"
            f"say --seed-from {flag} --seeds crossed --unpaired --tasks fixed; or --ignore {flag} if it means nothing"
        )


def arms_like_runs(arms: Sequence[object]) -> list[str]:
    """A note where arms are called like runs of one arm, such as `base-seed0` and `base-seed1`."""
    runs: dict[str, list[str]] = {}
    for arm in map(str, arms):
        if match := RUN_NAME.fullmatch(arm):
            runs.setdefault(match[1], []).append(arm)
    alike = {stem: names for stem, names in runs.items() if len(names) > 1}
    if not alike:
        return []
    stem, names = next(iter(alike.items()))
    return [
        f"arms {names[0]!r} and {names[1]!r} are called like runs of one arm ({stem}): each counts as an arm of its own, and the "
        "verdict is about these runs only. To compare what they are runs of, split the name into a column for the arm and "
        "one for the seed"
    ]


def _evenly_repeated(frame: pl.DataFrame, name: str) -> bool:
    """Whether every value stands on three rows or more, as often as every other: workers of each arm, say.

    None of 1,000 columns of 3 to 6 random notes on 12 to 60 rows does.
    """
    counts = frame[name].value_counts()["count"]
    return counts.n_unique() == 1 and int(counts[0]) > 2


def _names_runs(name: str) -> bool:
    words = words_of(name)
    return any(word in RUN_WORDS for word in words) or (words[-1:] == ["path"] and "model" in words)


def errors_reported(frame: pl.DataFrame, roles: Mapping[str, str], statuses: Sequence[str]) -> list[str]:
    """A note for each column of errors that has values in rows which count as scores."""
    import polars as pl

    counted = pl.Series([status in ("", "succeeded") for status in statuses])
    notes = []
    for name, kind in frame.schema.items():
        if name in roles.values() or not is_error_column(name) or kind not in (pl.String, pl.Boolean):
            continue
        has_error = (frame[name].str.strip_chars().str.len_chars() > 0) if kind == pl.String else frame[name]
        rows = frame.filter(has_error.fill_null(False) & counted)
        if rows.height:
            arms = ", ".join(
                f"{count} of {arm}" for arm, count in rows[roles["arm"]].value_counts(sort=True).iter_rows()
            )
            example = f", such as {str(rows[name][0]).strip()[:40]!r}" if kind == pl.String else ""
            notes.append(
                f"{rows.height} of {frame.height} rows have a value in column {name!r} ({arms}){example}, and count by "
                f"their scores, those without one as missing; --status-from {shlex.quote(name)} counts them as failed"
            )
    return notes


def is_error_column(name: str) -> bool:
    """Whether a column is called like one that says what went wrong: `error`, `exception`, `failureReason`."""
    words = words_of(name)
    return any(word in ERROR_WORDS for word in words[:1] + words[-1:])


def refuse_duplicates(
    frame: pl.DataFrame, label: str, roles: Mapping[str, str], columns: Columns, names: Sequence[str]
) -> None:
    """Raise UsageError for rows that are equal in everything: a copied row is not a second run.

    Outcomes of 0 and 1 repeat by nature, and rows with a seed or a rollout number are refused by the verdicts.
    """
    import polars as pl

    if columns.keep_duplicates or {"seed", "rollout", "step"} & set(roles):
        return
    numbers = [frame[name].cast(pl.Float64) for name in names if name in frame.columns]
    if numbers and all(column.drop_nulls().is_in([0.0, 1.0]).all() for column in numbers):
        return
    copies = frame.filter(frame.is_duplicated())
    if copies.height:
        first = ", ".join(f"{name}={value}" for name, value in copies.row(0, named=True).items())
        raise UsageError(
            f"{label}: {copies.height} rows stand more than once, such as {first}. Remove the copies, add a column that "
            "numbers the runs (seed or rollout), or say --keep-duplicates if they are separate runs"
        )


def groups_of_tasks(frame: pl.DataFrame, roles: Mapping[str, str], ignored: Sequence[str]) -> dict[str, dict[str, str]]:
    """Columns that group tasks and that nothing uses, such as `repo`: column to task to group.

    A group is a function of the task. As many groups as tasks are other names of them. A task without a group is one of
    its own.
    """
    import polars as pl

    if "task" not in roles:
        return {}
    task = roles["task"]
    groups = {}
    for name, kind in frame.schema.items():
        if name in (*roles.values(), *ignored) or not (
            kind == pl.String or kind.is_numeric() or kind == pl.Categorical
        ):
            continue
        pairs = frame.select(task, name).unique(maintain_order=True)
        named = pairs.drop_nulls(name)
        tasks, levels = pairs[task].n_unique(), named[name].n_unique()
        if pairs.height == tasks and 1 < levels < named.height:
            groups[name] = {
                str(key): f"{key} alone" if level is None else str(level) for key, level in pairs.iter_rows()
            }
    by_name = groups_in_names([str(value) for value in frame[task].drop_nulls().unique(maintain_order=True).to_list()])
    known = {_partition(each) for each in groups.values()}
    if by_name and TASK_PREFIX not in (*frame.columns, *ignored) and _partition(by_name) not in known:
        groups[TASK_PREFIX] = by_name
    return groups


def groups_in_names(tasks: Sequence[str]) -> dict[str, str]:
    """Task to the group that its name tells, where names fall into several groups; else nothing.

    The group of `django__django-11039` is `django__django`, and that of `algebra/12` is `algebra`. Effects that differ by
    group as much as by task give 25 to 64 % false verdicts by task (6 to 11 groups), and 3.7 to 5.3 % if groups have to
    agree. Where groups have nothing in common that costs 80 % power 15 to 20 points (6 to 8 equal groups).
    """
    for pattern in (r"(.+)/[^/]+", r"(.*[^\W\d_].*?)[\W_]*\d+"):
        matches = {task: re.fullmatch(pattern, task) for task in tasks}
        stems = {match[1] for match in matches.values() if match}
        groups = {task: match[1] if match else f"{task} alone" for task, match in matches.items()}
        if len(stems) > 1 and len(set(groups.values())) < len(tasks):
            return groups
    return {}


def _partition(groups: Mapping[str, str]) -> frozenset[frozenset[str]]:
    members: dict[str, set[str]] = {}
    for task, group in groups.items():
        members.setdefault(group, set()).add(task)
    return frozenset(map(frozenset, members.values()))
