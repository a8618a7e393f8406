"""What a table must not be judged with: unused identifiers, counters, runs that nothing names, and copied rows.

Each check raises a UsageError that says which column it is about and which flag says what it is.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bakeoff.errors import UsageError
from bakeoff.results.columns import Codes, Groups, Mask, Sheet, in_order
from bakeoff.results.importers.table_roles import ROLE_NAMES, VALUES, Columns, Steps, counts_rows
from bakeoff.spec.directions import words_of

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
    sheet: Sheet, label: str, roles: Mapping[str, str], columns: Columns, also_keys: Sequence[str]
) -> None:
    """Raise UsageError for a column that nobody uses and that tells rows of one arm, task and seed apart.

    Averaging over such a column, or pairing without it, treats repeated measurements of one thing as independent. A
    column looks like an identifier when every arm has the same values equally often, or when its name says so and the
    arms share most of its values. A score that happens to take few values differs in how often it takes them. A column
    that counts the rows of every run up may count repeats or steps.
    """
    groups = [*(roles[role] for role in ("arm", "task", "seed", "step") if role in roles), *also_keys]
    runs = [*(roles[role] for role in ("arm", "task", "seed", "rollout") if role in roles), *also_keys]
    unused = [
        name
        for name in sheet.names
        if name not in (*roles.values(), *also_keys, *columns.ignore) and name.strip().lower() not in VALUES
    ]
    identifiers = []
    for name in unused:
        if sheet[name].is_label and _identifies(sheet, name, roles, groups):
            identifiers.append(name)
        elif sheet[name].is_numeric and "step" not in roles and counts_rows(sheet, name, runs):
            flag = shlex.quote(name)
            seed = f"--seed-from {flag} if it is the seed, " if "seed" not in roles else ""
            raise UsageError(
                f"{label}: column {name!r} counts the rows of every run up. Say --step-from {flag} if rows are steps of "
                f"one run, {seed}--rollout-from {flag} if they are independent repeats, or --ignore {flag}"
            )
    if identifiers:
        raise UsageError(f"{label}: {_what_it_could_be(sheet, identifiers, roles, runs)}")


def _identifies(sheet: Sheet, name: str, roles: Mapping[str, str], groups: Sequence[str]) -> bool:
    """Whether a column looks like an identifier that tells rows of one group apart."""
    column, arm = sheet[name], sheet[roles["arm"]]
    if sheet.distinct(*groups, name) == sheet.distinct(*groups):
        return False
    if "rollout" in roles and sheet.distinct(name, roles["rollout"]) == sheet.distinct(roles["rollout"]):
        return False  # it numbers the same rows as a column that is used
    # One entry for each value and each arm that has it: how often it does.
    pairs = sheet.groups(name, roles["arm"])
    known = column.filled[pairs.firsts]
    values, arms, counts = column.codes[pairs.firsts][known], arm.codes[pairs.firsts][known], pairs.sizes[known]
    count, all_arms = len(column.known), len(np.unique(arms))
    # Every arm has each value equally often, such as 10 attempts of one arm and 5 of another at each question.
    even = bool(_are_equal(counts, arms, len(arm.levels)).all())
    everywhere = np.bincount(values, minlength=len(column.levels)) == all_arms
    equally = everywhere & _are_equal(counts, values, len(column.levels))
    shared, equal = (int(part.sum()) / max(1, count) for part in (everywhere, equally))
    named = _is_named_identifier(name)
    looks = all_arms > 1 and count >= 3 and (equal >= 0.8 or (even and shared >= 0.8))
    return looks or (named and count >= 2 and shared >= 0.5)


def _are_equal(counts: Codes, groups: Codes, count: int) -> Mask:
    """Return of each group whether its counts are all the same."""
    lows, highs = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
    np.minimum.at(lows, groups, counts)
    np.maximum.at(highs, groups, counts)
    return lows >= highs


def _is_named_identifier(name: str) -> bool:
    return IDENTIFIER.search("_".join(words_of(name))) is not None or name.strip().lower() in ROLE_NAMES


def refuse_grouped_seeds(
    sheet: Sheet, label: str, roles: Mapping[str, str], columns: Columns, notes: list[str]
) -> None:
    """Raise UsageError where no column is the task, and one that nobody uses has several seeds for each of its values.

    Seeds 0 to 7 of question 1, 8 to 15 of question 2 and so on are 8 runs of each question, and no seed tells rows of one
    question apart: with the seed as the unit, 39 % of tables without an effect get a verdict (20 questions of 8 seeds, equal
    variances). A name of an identifier, or equally many seeds for each of 3 values or more, is refused; anything else is a note.
    """
    if "task" in roles or "seed" not in roles or "step" in roles:
        return
    seed, arm = roles["seed"], roles["arm"]
    for name, column in sheet.items():
        if name in (*roles.values(), *columns.ignore) or name.strip().lower() in VALUES or not column.is_label:
            continue
        pairs = sheet.groups(name, seed)
        filled = column.filled[pairs.firsts] & sheet[seed].filled[pairs.firsts]
        sizes = np.bincount(column.codes[pairs.firsts][filled], minlength=len(column.levels))
        sizes = sizes[sizes > 0]
        seeds = len(np.unique(sheet[seed].codes[pairs.firsts][filled]))
        shared = (sheet.groups(name).distinct(sheet.groups(arm)) > 1).mean()
        if int(filled.sum()) != seeds or not 1 < len(sizes) < seeds or shared < 0.8:
            continue
        flag = shlex.quote(name)
        what = f"seeds fall into {len(sizes)} groups by column {name!r}, and the arms share the groups"
        even = len(sizes) >= 3 and len({*sizes.tolist()}) == 1 and not _DATE_WORDS & set(words_of(name))
        if _is_named_identifier(name) or even:
            raise UsageError(
                f"{label}: {what}, as runs of one task do. Say --task-from {flag} if it is the task, or --ignore {flag} if "
                "seeds of one group have nothing in common"
            )
        if column.kind == "text":
            notes.append(
                f"{what}: if seeds of one group have something in common, false verdicts are more frequent than alpha; "
                f"--task-from {flag} takes it as the task, --ignore {flag} removes this line"
            )


def _what_it_could_be(sheet: Sheet, identifiers: Sequence[str], roles: Mapping[str, str], runs: Sequence[str]) -> str:
    """Every flag that makes sense for identifiers that nobody uses.

    A column that only numbers rows inside another identifier is never proposed as the task: repeats of one question
    would count as questions of their own.
    """
    name = min(identifiers, key=sheet.distinct)
    flag = shlex.quote(name)
    levels = f"{len(sheet[name].known)} values that the arms share"
    finer = next((other for other in identifiers if other != name and refines(sheet, other, name)), None)
    if "task" not in roles and finer is not None:
        inner = shlex.quote(finer)
        return (
            f"columns {name!r} ({levels}) and {finer!r} look like identifiers, and {finer!r} has several values for each "
            f"{name!r}. Say --task-from {flag} --rollout-from {inner} if rows of one {name!r} are repeats, or --task-from "
            f"{inner} --cluster {flag} if they are different tasks of one group"
        )
    if "step" not in roles and _holds_step_labels(sheet, name):
        return (
            f"column {name!r} ({levels}) holds text such as {sheet[name].known[0]!r}. If rows are steps of one run, "
            f"write their numbers there and say --step-from {flag}, or keep the last row of each run; say --rollout-from "
            f"{flag} if they are independent repeats, or --ignore {flag} if rows that differ only in it are independent runs"
        )
    # An identifier of numbers that count up may be a step, however the rows of the file are sorted.
    counter = (
        "step" not in roles
        and sheet[name].is_numeric
        and counts_rows(sheet.at(np.argsort(sheet[name].numbers, kind="stable")), name, runs)
    )
    # Seeds count up too, and where they recur over tasks they are never independent repeats.
    places = ["seed"] if (counter and not _is_named_identifier(name)) or "seed" in words_of(name) else ["task", "seed"]
    one_task = "task" in roles and sheet.distinct(roles["task"]) == 1  # the name of a benchmark
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


def _holds_step_labels(sheet: Sheet, name: str) -> bool:
    """Whether every text in a column names a step or a date."""
    return sheet[name].kind == "text" and all(STEP_LABEL.fullmatch(text.strip()) for text in sheet[name].known)


def refines(sheet: Sheet, finer: str, coarser: str) -> bool:
    """Whether each value of `finer` belongs to one value of `coarser`, which has fewer."""
    known = sheet.at(sheet[finer].filled & sheet[coarser].filled)
    return known.distinct(finer, coarser) == known.distinct(finer) > known.distinct(coarser) > 1


def refuse_repeated_steps(sheet: Sheet, label: str, steps: Steps, keys: Sequence[str], notes: list[str]) -> None:
    """Raise UsageError where steps stand several times in one run; a few, as after a restart, are a note."""
    if steps.column is None:
        return
    repeated = sheet.height - sheet.distinct(*keys, steps.column)
    if repeated > MAX_REPEATED * sheet.height:
        raise UsageError(
            f"{label}: {repeated} of {sheet.height} rows repeat a step ({steps.column!r}) of their run, so something else "
            "tells them apart. Name it (--task-from, --seed-from, --rollout-from), or name another --step-from"
        )
    if repeated:
        notes.append(f"{repeated} rows repeat a step of their run; the later one counts")


def refuse_runs(sheet: Sheet, label: str, roles: Mapping[str, str], columns: Columns, notes: list[str]) -> None:
    """Raise UsageError for a column whose values belong to one arm each and stand on several tasks: it names runs.

    Rows of one trained run are not independent, so tasks or rows cannot be the units. Where every arm has one such run,
    the verdict is about these runs only, and a note says so.
    """
    arm = roles["arm"]
    inside = [roles[role] for role in ("task", "seed") if role in roles]
    for name, column in sheet.items():
        if name in (*roles.values(), *columns.ignore) or not column.is_label:
            continue
        if column.kind == "whole" and name.strip().lower() in VALUES:
            continue
        named = _names_runs(name)
        # An arm without training may have no checkpoint.
        if not column.known or (None in column.levels and not named):
            continue
        known = sheet if None not in column.levels else sheet.at(column.filled)
        runs = known.groups(name)
        places = runs.distinct(known.groups(*inside)) if inside else runs.sizes
        if known.distinct(name, arm) > runs.count or int((places > 1).sum()) < 0.8 * runs.count:
            continue
        if not inside and not named and not _evenly_repeated(runs):
            continue
        several = np.bincount(known[arm].codes[runs.firsts]).max() > 1
        if not several:
            if named and "seed" not in roles and runs.count > 1:
                notes.append(
                    f"each arm is one {name} ({', '.join(map(str, in_order(known[name].levels)[:3]))}): the verdict is about "
                    "these runs only, not about others that were trained alike"
                )
            continue
        apart = known.distinct(arm, *inside, name) > known.distinct(arm, *inside)
        if "seed" in roles and not apart:
            continue  # seeds tell the runs apart, and are their names
        flag = shlex.quote(name)
        filled = "fill in its empty cells and " if known.height < sheet.height else ""
        raise UsageError(
            f"{label}: column {name!r} names runs: each of its {runs.count} values belongs to one arm and stands on "
            f"several rows, so rows of one run are not independent. To compare runs, {filled}say --seed-from {flag} --seeds "
            f"crossed --unpaired, and --tasks fixed if only these tasks matter; or --ignore {flag} if it means nothing"
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


def _evenly_repeated(values: Groups) -> bool:
    """Whether every value stands on three rows or more, as often as every other: workers of each arm, say.

    None of 1,000 columns of 3 to 6 random notes on 12 to 60 rows does.
    """
    return len({*values.sizes.tolist()}) == 1 and int(values.sizes[0]) > 2


def _names_runs(name: str) -> bool:
    words = words_of(name)
    return any(word in RUN_WORDS for word in words) or (words[-1:] == ["path"] and "model" in words)


def errors_reported(sheet: Sheet, roles: Mapping[str, str], statuses: Sequence[str]) -> list[str]:
    """A note for each column of errors that has values in rows which count as scores."""
    counted = np.array([status in ("", "succeeded") for status in statuses])
    notes = []
    for name, column in sheet.items():
        if name in roles.values() or not is_error_column(name) or column.kind not in ("text", "truth"):
            continue
        is_text = column.kind == "text"
        rows = np.flatnonzero(counted & column.where(str.strip if is_text else bool))
        if len(rows):
            arms = Counter(map(sheet[roles["arm"]].__getitem__, rows.tolist()))
            named = ", ".join(f"{count} of {arm}" for arm, count in arms.most_common())
            example = f", such as {column[rows[0]].strip()[:40]!r}" if is_text else ""
            notes.append(
                f"{len(rows)} of {sheet.height} rows have a value in column {name!r} ({named}){example}, and count by "
                f"their scores, those without one as missing; --status-from {shlex.quote(name)} counts them as failed"
            )
    return notes


def is_error_column(name: str) -> bool:
    """Whether a column is called like one that says what went wrong: `error`, `exception`, `failureReason`."""
    words = words_of(name)
    return any(word in ERROR_WORDS for word in words[:1] + words[-1:])


def refuse_duplicates(
    sheet: Sheet, label: str, roles: Mapping[str, str], columns: Columns, names: Sequence[str]
) -> None:
    """Raise UsageError for rows that are equal in everything: a copied row is not a second run.

    Outcomes of 0 and 1 repeat by nature, and rows with a seed or a rollout number are refused by the verdicts.
    """
    if columns.keep_duplicates or {"seed", "rollout", "step"} & set(roles):
        return
    numbers = [sheet[name] for name in names if name in sheet]
    if numbers and all(set(column.known) <= {0, 1} for column in numbers):
        return
    rows = sheet.groups(*sheet.names)
    if rows.count < sheet.height:
        copies = rows.sizes[rows.codes] > 1
        first = ", ".join(f"{name}={value}" for name, value in sheet.row(int(np.argmax(copies))).items())
        raise UsageError(
            f"{label}: {int(copies.sum())} rows stand more than once, such as {first}. Remove the copies, add a column that "
            "numbers the runs (seed or rollout), or say --keep-duplicates if they are separate runs"
        )


def groups_of_tasks(sheet: Sheet, roles: Mapping[str, str], ignored: Sequence[str]) -> dict[str, dict[str, str]]:
    """Columns that group tasks and that nothing uses, such as `repo`: column to task to group.

    A group is a function of the task. As many groups as tasks are other names of them. A task without a group is one of
    its own.
    """
    if "task" not in roles:
        return {}
    task = roles["task"]
    groups = {}
    for name, column in sheet.items():
        if name in (*roles.values(), *ignored) or not (column.is_label or column.is_numeric):
            continue
        pairs = sheet.groups(task, name)
        if pairs.count == sheet.distinct(task) and 1 < len(column.known) < int(column.filled[pairs.firsts].sum()):
            cells = [(sheet[task][row], column[row]) for row in np.sort(pairs.firsts).tolist()]
            groups[name] = {str(key): f"{key} alone" if level is None else str(level) for key, level in cells}
    by_name = groups_in_names([str(value) for value in sheet[task].known])
    known = {_partition(each) for each in groups.values()}
    if by_name and TASK_PREFIX not in (*sheet.names, *ignored) and _partition(by_name) not in known:
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
