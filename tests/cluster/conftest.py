"""Clusters of real daemons in namespaces of this machine, one of each kind for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.ray_nodes import RayCluster
from cluster.slurm import SlurmCluster

NEEDS = {"slurm_cluster": ("root", "apt", "slow"), "ray_cluster": ("root", "apt", "slow")}


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in set(getattr(item, "fixturenames", ())) & NEEDS.keys():
            for marker in NEEDS[fixture]:
                item.add_marker(getattr(pytest.mark, marker))


@pytest.fixture(scope="session")
def _slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(gpus=2) as cluster:
        yield cluster


@pytest.fixture
def slurm_cluster(_slurm: SlurmCluster) -> SlurmCluster:
    """slurmctld and two nodes that say they have two GPUs, all links up and no jobs."""
    _slurm.reset()
    return _slurm


@pytest.fixture(scope="session")
def _ray() -> Iterator[RayCluster]:
    with RayCluster(gpus=2) as cluster:
        yield cluster


@pytest.fixture
def ray_cluster(_ray: RayCluster) -> RayCluster:
    """A head without CPUs and two nodes that say they have two GPUs, all links up. Replace a node that a test has lost."""
    for name in _ray.names:
        _ray.restore(name)
    return _ray
