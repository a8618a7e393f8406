"""One small warm start for all tests of a worker, trained for real in a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bakeoff.engine.node.context import stream_key
from bakeoff.workloads.language import pretrain
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.tasks import Task
from bakeoff.workloads.language.trainer import Trainer
from workloads.language.small import SMALL


@pytest.fixture(scope="session")
def strings() -> Task:
    return Task("strings")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All runs of a test session share its own cache of warm starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        torch.set_num_threads(1)
        yield pretrain.cache_directory()


@pytest.fixture
def warm(strings: Task) -> pretrain.WarmStart:
    """A fresh copy each time: trainings change it in place."""
    params = LanguageParams(**SMALL)
    shape = pretrain.shape_of(strings, params.width, params.layers, params.heads)
    return pretrain.cached(strings, shape, params.warm_steps, params.warm_seed)


@pytest.fixture
def trainer(strings: Task, warm: pretrain.WarmStart) -> Callable[..., Trainer]:
    """`trainer(seed, **changes)` is a training from the warm start."""

    def made(seed: int = 0, **changes: object) -> Trainer:
        def rng(name: str) -> np.random.Generator:
            return np.random.Generator(np.random.Philox(key=stream_key(seed, name)))

        model = pretrain.GPT(warm.model.shape, torch.Generator())
        model.flat.copy_(warm.model.flat)
        return Trainer(LanguageParams(**{**SMALL, **changes}), strings, model, rng)

    return made
