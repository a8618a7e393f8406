"""retrain's semantic planning detector: its sentences, its thresholds, and the real embedding model."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.errors import UsageError, install
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.planning import EXECUTION, PLANNING, embedding_directory, minilm, semantic, sentences_of
from bakeoff.workloads.language.tasks import END, Task


@given(st.lists(st.sampled_from([" a", " b c", "d", ""]), max_size=40))
def test_sentences_have_twelve_words_and_start_every_six(pieces: list[str]) -> None:
    owners = [token for token, piece in enumerate(pieces) for _ in piece.split()]
    words = [word for piece in pieces for word in piece.split()]
    sentences = sentences_of(pieces)
    if len(words) < 3:
        assert not sentences
        return
    for number, (text, first, after) in enumerate(sentences):
        part = slice(6 * number, 6 * number + 12)
        assert text.split() == words[part]
        assert (first, after) == (owners[part][0], owners[part][-1] + 1)
    assert 6 * len(sentences) + 6 >= len(words), "the last sentence reaches the end"
    assert len(sentences) == 1 or 6 * len(sentences) < len(words), "and no sentence follows it"


def test_a_sentence_is_planning_if_it_is_nearer_to_planning_by_the_threshold() -> None:
    task = Task("countdown")
    angles = {"first add 9": 0.4, "first divide 9": 0.79, "first subtract 9": 1.2}
    far = np.array([0.1, 0.0, np.sqrt(1 - 0.01)])

    def embed(sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        vectors = []
        for text in sentences:
            angle = 0.0 if text in PLANNING else np.pi / 2 if text in EXECUTION else angles.get(text)
            vectors.append(far if angle is None else [np.cos(angle), np.sin(angle), 0])
        return np.array(vectors, dtype=np.float32)

    ids = np.array([task.encode([*text.split(), END]) for text in (*angles, "first multiply 9")])
    detect = semantic(task, embed, 0.02)
    assert detect(ids).tolist() == [[True] * 3 + [False], [False] * 4, [False] * 4, [False] * 4], (
        "cos .79 is above sin .79 by less than .02, and the last is similar to nothing"
    )
    assert semantic(task, embed, -0.02)(ids)[1].any()


@pytest.mark.slow
def test_the_packaged_model_tells_plans_from_results() -> None:
    embed = minilm(embedding_directory(None))
    vectors = embed(["we should try another strategy", "4 times 6 makes 24", "we should try another strategy"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5), "a sentence does not depend on its batch"
    planning, execution = (embed(sentences).mean(axis=0) for sentences in (PLANNING, EXECUTION))
    assert vectors[0] @ planning > vectors[0] @ execution + 0.1
    assert vectors[1] @ execution > vectors[1] @ planning + 0.1


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"nowhere is not a directory of a sentence-embedding model"):
        embedding_directory("nowhere")
    monkeypatch.setattr("bakeoff.workloads.language.planning.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=re.escape(install("semantic"))):
        embedding_directory(None)
    assert LanguageParams(planning="semantic").planning_threshold == 0.02
