"""The cluster of the tests marked `slurm`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_cluster import running_slurm


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[None]:
    with running_slurm(tmp_path_factory.mktemp("slurm")):
        yield
