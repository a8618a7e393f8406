"""Verifiable tasks for a small language model. Every word is one token, and every prompt of a task has the same length.

An answer is one plan or two, two words each that name a strategy, and the execution of each:

    countdown   9 1 8 :                 first subtract 9 - 1 = 8
    countdown3  3 5 4 32 :              first add 3 + 5 = 8 then multiply 8 * 4 = 32
    modular     17 + 20 mod 23 :        wrap once 17 + 20 = 37 - 23 = 14
    strings     a c d b > b d c a :     apply reverse b d c a

So it is known by construction which tokens are planning and which are execution. A plan chooses one of four strategies, and
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
from typing import Literal, Protocol, get_args

from bakeoff.errors import UsageError
from bakeoff.spec.identity import canonical_json

TaskName = Literal["countdown", "countdown3", "modular", "strings"]
TASKS: tuple[str, ...] = get_args(TaskName)
Split = Literal["train", "heldout"]
PAD = -1
"""Stands where there is no token, in front of a prompt that is shorter than others."""
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
class Plan:
    """A choice within an answer: its first word, and one of the strategies."""

    word: str
    strategies: tuple[str, ...]
    known: float = 0.2
    """How much of its probability a warm start gives to strategies that can still lead to a right answer; the rest is
    spread evenly."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes a task: `solve(prompt, strategies)` returns the words that carry out each plan, and whether it is right."""

    words: tuple[str, ...]
    """The vocabulary without `<end>`, `none` and the plans."""
    plans: tuple[Plan, ...]
    prompts: Callable[[], Iterator[Prompt]]
    solve: Callable[[Prompt, Sequence[str]], tuple[list[list[str]], bool]]
    accepts: Callable[[Prompt, Sequence[str], Sequence[Sequence[str]]], bool]
    """Whether (prompt, strategies, executions) is a right answer, also in another form than `solve` writes it."""
    longest: int
    """Words of the longest answer, with `<end>`."""
    warm_steps: int = 700
    """Steps of a warm start's training, unless a run says otherwise."""


class Codec(Protocol):
    """How prompts become tokens, and tokens an answer. A `Task` is one: each word is a token."""

    @property
    def ending(self) -> list[bool]:
        """For each token whether it ends an answer."""

    @property
    def longest_answer(self) -> int:
        """Tokens, with the one that ends it."""

    def questions(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """What the model reads, one row for each prompt, of equal lengths; `PAD` stands in front of shorter ones."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each token before the one that ends the answer."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text before the token that ends the answer."""

    def reward(self, prompt: Prompt, ids: Sequence[int]) -> float:
        """1 for a right answer that ends, else 0."""


class Task:
    """A task with its vocabulary and its prompts by split."""

    def __init__(self, name: str) -> None:
        if name not in _RULES:
            raise UsageError(f"no task called {name!r}; there are {', '.join(TASKS)}")
        self.name = name
        self.rules = _RULES[name]
        self.planning_words = tuple(
            dict.fromkeys(word for plan in self.rules.plans for word in (plan.word, *plan.strategies))
        )
        """Words of plans: they occur nowhere else."""
        self.vocabulary: tuple[str, ...] = (END, NONE, *self.planning_words, *self.rules.words)
        self.ids: Mapping[str, int] = {word: number for number, word in enumerate(self.vocabulary)}
        self.planning_ids = tuple(range(2, 2 + len(self.planning_words)))

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

    @property
    def ending(self) -> list[bool]:
        """For each token whether it ends an answer."""
        return [word == END for word in self.vocabulary]

    def questions(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """What the model reads, one row for each prompt, of equal lengths."""
        return [self.encode(prompt.words) for prompt in prompts]

    def encode(self, words: Sequence[str]) -> list[int]:
        return [self.ids[word] for word in words]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each token before `<end>`."""
        return [f" {self.vocabulary[number]}" for number in itertools.takewhile(bool, ids)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text up to `<end>`."""
        return " ".join(self.vocabulary[number] for number in itertools.takewhile(bool, ids))

    def answers(self, prompt: Prompt) -> list[tuple[list[str], bool]]:
        """The words that each choice of strategies leads to, and whether that is right; the last plan varies fastest."""
        plans = self.rules.plans
        answers = []
        for strategies in itertools.product(*(plan.strategies for plan in plans)):
            executions, right = self.rules.solve(prompt, strategies)
            words: list[str] = []
            for plan, strategy, execution in zip(plans, strategies, executions, strict=True):
                words += [plan.word, strategy, *execution]
            answers.append((words, right))
        return answers

    def reward(self, prompt: Prompt, ids: Sequence[int]) -> float:
        """1 for an answer that is right to the last token and ends, else 0. The plans must be those carried out."""
        words = [self.vocabulary[number] for number in itertools.takewhile(bool, ids)]
        return 0.0 if len(words) == len(ids) else float(self.accepts(prompt, words))

    def accepts(self, prompt: Prompt, words: Sequence[str]) -> bool:
        """Whether this is a right answer, from its first word to its last."""
        strategies, executions, rest = [], [], list(words)
        following = [*(plan.word for plan in self.rules.plans[1:]), None]
        for plan, after in zip(self.rules.plans, following, strict=True):
            if len(rest) < 3 or rest[0] != plan.word or rest[1] not in plan.strategies:
                return False
            end = rest.index(after) if after in rest else len(rest)
            strategies.append(rest[1])
            executions.append(rest[2:end])
            rest = rest[end:]
        return self.rules.accepts(prompt, strategies, executions)

    @property
    def phrases(self) -> list[str]:
        """Every plan with every strategy."""
        return [f"{plan.word} {strategy}" for plan in self.rules.plans for strategy in plan.strategies]

    def check_phrases(self, phrases: Sequence[str]) -> None:
        """Raise UsageError for planning phrases that no answer of this task can contain."""
        for phrase in phrases:
            unknown = [word for word in phrase.split() if word not in self.ids]
            if unknown or not phrase.strip():
                raise UsageError(
                    f"phrases: the vocabulary of {self.name} cannot spell {phrase!r}"
                    f"{f' ({unknown[0]!r} is not in it)' if unknown else ''}; its plans are {', '.join(self.phrases)}"
                )


# -- countdown: reach the target from two numbers, or from three

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


def _carried_out(strategy: str, first: int | None, second: int) -> tuple[list[str], int | None]:
    """The words of one operation, and its result. Nothing follows from `none`."""
    if first is None:
        return [NONE, _SYMBOLS[strategy], str(second), "=", NONE], None
    left, right = _ordered(strategy, first, second)
    result = _combine(strategy, left, right)
    return [str(left), _SYMBOLS[strategy], str(right), "=", NONE if result is None else str(result)], result


def _countdown(prompt: Prompt, strategies: Sequence[str]) -> tuple[list[list[str]], bool]:
    first, *others, target = map(int, prompt.facts)
    executions: list[list[str]] = []
    result: int | None = first
    for strategy, number in zip(strategies, others, strict=True):
        words, result = _carried_out(strategy, result, number)
        executions.append(words)
    return executions, result == target


def _accepts_countdown(prompt: Prompt, strategies: Sequence[str], executions: Sequence[Sequence[str]]) -> bool:
    """Numbers may be taken in any order. Each operation uses up two of those that are left and adds its result."""
    *left, target = map(int, prompt.facts)
    for strategy, words in zip(strategies, executions, strict=True):
        if len(words) != 5 or words[1] != _SYMBOLS[strategy] or words[3] != "=":
            return False
        if not all(word.isascii() and word.isdigit() and word == str(int(word)) for word in words[::2]):
            return False
        first, second, result = map(int, words[::2])
        if _combine(strategy, first, second) != result:
            return False
        for number in (first, second):
            if number not in left:
                return False
            left.remove(number)
        left.append(result)
    return left == [target]


def _countdown3_prompts() -> Iterator[Prompt]:
    for numbers in itertools.product(range(1, 13), repeat=3):
        for strategies in itertools.product(_SYMBOLS, repeat=2):
            result: int | None = numbers[0]
            for strategy, number in zip(strategies, numbers[1:], strict=True):
                result = _carried_out(strategy, result, number)[1]
            if result is not None:
                yield Prompt((*map(str, numbers), str(result), ":"), (*numbers, result))


# -- modular arithmetic: how often does the modulus go into the sum?

_WRAPS = {"never": 0, "once": 1, "twice": 2, "thrice": 3}


def _modular_prompts() -> Iterator[Prompt]:
    for first, second, modulus in itertools.product(range(2, 30), range(2, 30), range(10, 30)):
        kept = hashlib.sha256(f"{first}+{second}%{modulus}".encode()).digest()[1] < 80  # about 4,800 are enough
        if kept and (first + second) // modulus in _WRAPS.values():
            words = (str(first), "+", str(second), "mod", str(modulus), ":")
            yield Prompt(words, (first, second, modulus))


def _modular(prompt: Prompt, strategies: Sequence[str]) -> tuple[list[list[str]], bool]:
    first, second, modulus = map(int, prompt.facts)
    total, removed = first + second, _WRAPS[strategies[0]] * modulus
    rest = total - removed
    words = [str(first), "+", str(second), "=", str(total), "-", str(removed), "=", str(rest) if rest >= 0 else NONE]
    return [words], 0 <= rest < modulus


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


def _strings(prompt: Prompt, strategies: Sequence[str]) -> tuple[list[list[str]], bool]:
    letters = tuple(map(str, prompt.facts))
    result = _TRANSFORMATIONS[strategies[0]](letters[:4])
    return [list(result)], result == letters[4:]


def _only(solve: Callable[[Prompt, Sequence[str]], tuple[list[list[str]], bool]]) -> Callable[..., bool]:
    """Accept a right answer in the very words of `solve`."""

    def accepts(prompt: Prompt, strategies: Sequence[str], executions: Sequence[Sequence[str]]) -> bool:
        words, right = solve(prompt, strategies)
        return right and [list(execution) for execution in executions] == words

    return accepts


_NUMBERS = tuple(str(number) for number in range(_LARGEST + 1))
_RULES: dict[str, Rules] = {
    "countdown": Rules(
        (*_NUMBERS, *_SYMBOLS.values(), "=", ":"),
        (Plan("first", tuple(_SYMBOLS)),), _countdown_prompts, _countdown, _accepts_countdown, 8,
    ),
    "countdown3": Rules(
        (*_NUMBERS, *_SYMBOLS.values(), "=", ":"),
        (Plan("first", tuple(_SYMBOLS), 0.7), Plan("then", tuple(_SYMBOLS), 0.9)),
        _countdown3_prompts, _countdown, _accepts_countdown, 15, warm_steps=2000,
    ),
    "modular": Rules(
        (*_NUMBERS, "+", "-", "=", "mod", ":"),
        (Plan("wrap", tuple(_WRAPS)),), _modular_prompts, _modular, _only(_modular), 12,
    ),
    "strings": Rules(
        (*"abcdef", ">", ":"),
        (Plan("apply", tuple(_TRANSFORMATIONS)),), _string_prompts, _strings, _only(_strings), 7,
    ),
}  # fmt: skip
