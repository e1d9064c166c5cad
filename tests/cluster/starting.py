"""How does a module of tests get a cluster of its own?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .binaries import BUILD, missing
from .cluster import Cluster, programs


@contextmanager
def started(
    folder: Path,
    *,
    kwok: int = 0,
    kwok_cpus: int = 64,
    kubelets: int = 0,
    gpus: int = 0,
    operators: Sequence[str] = (),
    images: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Or the words that say how to get what it needs."""
    if absent := missing(programs(kwok=kwok, kubelets=kubelets, operators=operators)):
        names = ", ".join(recipe.folder for recipe in absent)
        pytest.fail(f"the test cluster's programs are not built yet ({names}); run: {BUILD}")
    nodes = Cluster(
        folder, kwok=kwok, kwok_cpus=kwok_cpus, kubelets=kubelets, gpus=gpus, operators=operators, images=images
    )
    with nodes as cluster:
        yield cluster


def module_cluster(**options: Any) -> Any:
    """A fixture, with the options of `started`: `cluster = module_cluster(kwok=2)`."""

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
        with started(tmp_path_factory.mktemp("cluster"), **options) as cluster:
            yield cluster

    return cluster
