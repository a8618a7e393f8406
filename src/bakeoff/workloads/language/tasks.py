"""Verifiable tasks for a small language model. Every word is one token, and every prompt of a task has the same length.

An answer is a plan, two words that name a strategy, and its execution:

    countdown   9 1 8 :                 first subtract 9 - 1 = 8
    modular     17 + 20 mod 23 :        wrap once 17 + 20 = 37 - 23 = 14
    strings     a c d b > b d c a :     apply reverse b d c a

So it is known by construction which tokens are planning and which are execution. Each task has four strategies, and
each of them can be carried out faithfully on every prompt, which may lead to a wrong result or to `none`. The warm start
learns that; which strategy fits a prompt is left to reinforcement learning.

A third of the prompts are held out. A hash of the prompt decides, so it does not depend on seeds, order or sizes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json

TaskName = Literal["countdown", "modular", "strings"]
TASKS: tuple[str, ...] = get_args(TaskName)
Split = Literal["train", "heldout"]
END = "<end>"
"""Token 0: ends an answer, and pads what follows."""
NONE = "none"
"""The result of a strategy that leads to no number of the vocabulary."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One problem. `facts` are what a verifier needs; `words` is what the model reads."""

    words: tuple[str, ...]
    facts: tuple[int, ...] | tuple[str, ...]

    @property
    def id(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes a task: `solve(facts, strategy)` returns the words of an answer's execution, and whether it is right."""

    words: tuple[str, ...]
    """The vocabulary without `<end>`, `none` and the plans."""
    plan: str
    """The first word of every answer."""
    strategies: tuple[str, ...]
    prompts: Callable[[], Iterator[Prompt]]
    solve: Callable[[Prompt, str], tuple[list[str], bool]]
    accepts: Callable[[Prompt, str, Sequence[str]], bool]
    """Whether (prompt, strategy, execution) is a right answer, also in another form than `solve` writes it."""
    longest: int
    """Words of the longest answer, with `<end>`."""


class Task:
    """A task with its vocabulary and its prompts by split."""

    def __init__(self, name: str) -> None:
        if name not in _RULES:
            raise UsageError(f"no task called {name!r}; there are {', '.join(TASKS)}")
        self.name = name
        self.rules = _RULES[name]
        self.vocabulary: tuple[str, ...] = (END, NONE, self.rules.plan, *self.rules.strategies, *self.rules.words)
        self.ids: Mapping[str, int] = {word: number for number, word in enumerate(self.vocabulary)}
        self.planning_ids = tuple(range(2, 3 + len(self.rules.strategies)))
        """Tokens of plans: they occur nowhere else."""

    @cached_property
    def digest(self) -> str:
        """Of the vocabulary: weights belong to one."""
        return hashlib.sha256(canonical_json([self.name, self.vocabulary]).encode()).hexdigest()[:12]

    @cached_property
    def _splits(self) -> dict[Split, list[Prompt]]:
        splits: dict[Split, list[Prompt]] = {"train": [], "heldout": []}
        for prompt in dict.fromkeys(self.rules.prompts()):
            third = hashlib.sha256(f"{self.name}|{prompt.id}".encode()).digest()[0] % 3
            splits["train" if third else "heldout"].append(prompt)
        return splits

    def prompts(self, split: Split) -> list[Prompt]:
        """All prompts of a split, always in the same order."""
        return self._splits[split]

    @property
    def prompt_length(self) -> int:
        return len(self._splits["train"][0].words)

    @property
    def longest_answer(self) -> int:
        """Tokens, with `<end>`."""
        return self.rules.longest

    def encode(self, words: Sequence[str]) -> list[int]:
        return [self.ids[word] for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        """The text up to `<end>`."""
        return " ".join(self.vocabulary[number] for number in itertools.takewhile(bool, ids))

    def answers(self, prompt: Prompt) -> list[tuple[list[int], bool]]:
        """The answer that each strategy leads to, with `<end>`, and whether it is right."""
        answers = []
        for strategy in self.rules.strategies:
            execution, right = self.rules.solve(prompt, strategy)
            answers.append((self.encode([self.rules.plan, strategy, *execution, END]), right))
        return answers

    def reward(self, prompt: Prompt, ids: Sequence[int]) -> float:
        """1 for an answer that is right to the last token and ends, else 0. The plan must be the one carried out."""
        words = [self.vocabulary[number] for number in itertools.takewhile(bool, ids)]
        if len(words) == len(ids) or len(words) < 3 or words[0] != self.rules.plan:
            return 0.0
        return float(words[1] in self.rules.strategies and self.rules.accepts(prompt, words[1], words[2:]))

    def check_phrases(self, phrases: Sequence[str]) -> None:
        """Raise UsageError for planning phrases that no answer of this task can contain."""
        for phrase in phrases:
            unknown = [word for word in phrase.split() if word not in self.ids]
            if unknown or not phrase.strip():
                known = ", ".join(f"{self.rules.plan} {strategy}" for strategy in self.rules.strategies)
                raise UsageError(
                    f"phrases: the vocabulary of {self.name} cannot spell {phrase!r}"
                    f"{f' ({unknown[0]!r} is not in it)' if unknown else ''}; its plans are {known}"
                )


# -- countdown: reach the target from two numbers

_LARGEST = 99
_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


def _combine(strategy: str, first: int, second: int) -> int | None:
    """The result, None if it is not a number of the vocabulary."""
    if strategy == "divide":
        return first // second if second and first % second == 0 else None
    result = {"add": first + second, "subtract": first - second, "multiply": first * second}[strategy]
    return result if 0 <= result <= _LARGEST else None


def _countdown_prompts() -> Iterator[Prompt]:
    for first, second in itertools.product(range(1, 41), repeat=2):
        for strategy in _SYMBOLS:
            target = _combine(strategy, *_ordered(strategy, first, second))
            if target is not None:
                yield Prompt((str(first), str(second), str(target), ":"), (first, second, target))


def _ordered(strategy: str, first: int, second: int) -> tuple[int, int]:
    """The larger number comes first where the order matters."""
    return (max(first, second), min(first, second)) if strategy in ("subtract", "divide") else (first, second)


def _countdown(prompt: Prompt, strategy: str) -> tuple[list[str], bool]:
    first, second, target = map(int, prompt.facts)
    left, right = _ordered(strategy, first, second)
    result = _combine(strategy, left, right)
    words = [str(left), _SYMBOLS[strategy], str(right), "=", NONE if result is None else str(result)]
    return words, result == target


def _accepts_countdown(prompt: Prompt, strategy: str, words: Sequence[str]) -> bool:
    first, second, target = map(int, prompt.facts)
    if len(words) != 5 or words[1] != _SYMBOLS[strategy] or words[3] != "=":
        return False
    left, right, result = words[0], words[2], words[4]
    if not (left.isdigit() and right.isdigit() and result == str(target)):
        return False
    used = (int(left), int(right))
    return sorted(used) == sorted((first, second)) and _combine(strategy, *used) == target


# -- modular arithmetic: how often does the modulus go into the sum?

_WRAPS = {"never": 0, "once": 1, "twice": 2, "thrice": 3}


def _modular_prompts() -> Iterator[Prompt]:
    for first, second, modulus in itertools.product(range(2, 30), range(2, 30), range(10, 30)):
        kept = hashlib.sha256(f"{first}+{second}%{modulus}".encode()).digest()[1] < 80  # about 4,800 are enough
        if kept and (first + second) // modulus in _WRAPS.values():
            words = (str(first), "+", str(second), "mod", str(modulus), ":")
            yield Prompt(words, (first, second, modulus))


def _modular(prompt: Prompt, strategy: str) -> tuple[list[str], bool]:
    first, second, modulus = map(int, prompt.facts)
    total, removed = first + second, _WRAPS[strategy] * modulus
    rest = total - removed
    words = [str(first), "+", str(second), "=", str(total), "-", str(removed), "=", str(rest) if rest >= 0 else NONE]
    return words, 0 <= rest < modulus


def _accepts_modular(prompt: Prompt, strategy: str, words: Sequence[str]) -> bool:
    execution, right = _modular(prompt, strategy)
    return right and list(words) == execution


# -- strings: which transformation was it?

_TRANSFORMATIONS: dict[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    "reverse": lambda letters: letters[::-1],
    "rotate": lambda letters: (*letters[1:], letters[0]),
    "exchange": lambda letters: (*letters[2:], *letters[:2]),
    "sort": lambda letters: tuple(sorted(letters)),
}


def _string_prompts() -> Iterator[Prompt]:
    for letters in itertools.product("abcdef", repeat=4):
        for transform in _TRANSFORMATIONS.values():
            yield Prompt((*letters, ">", *transform(letters), ":"), (*letters, *transform(letters)))


def _strings(prompt: Prompt, strategy: str) -> tuple[list[str], bool]:
    letters = tuple(map(str, prompt.facts))
    result = _TRANSFORMATIONS[strategy](letters[:4])
    return list(result), result == letters[4:]


def _accepts_strings(prompt: Prompt, strategy: str, words: Sequence[str]) -> bool:
    execution, right = _strings(prompt, strategy)
    return right and list(words) == execution


_NUMBERS = tuple(str(number) for number in range(_LARGEST + 1))
_RULES: dict[str, Rules] = {
    "countdown": Rules(
        (*_NUMBERS, *_SYMBOLS.values(), "=", ":"),
        "first", tuple(_SYMBOLS), _countdown_prompts, _countdown, _accepts_countdown, 8,
    ),
    "modular": Rules(
        (*_NUMBERS, "+", "-", "=", "mod", ":"),
        "wrap", tuple(_WRAPS), _modular_prompts, _modular, _accepts_modular, 12,
    ),
    "strings": Rules(
        (*"abcdef", ">", ":"),
        "apply", tuple(_TRANSFORMATIONS), _string_prompts, _strings, _accepts_strings, 7,
    ),
}  # fmt: skip
