"""The cluster of the tests marked `slurm`, and entries for launchers to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_cluster import running_slurm


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[None]:
    with running_slurm(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.fixture
def entry(tmp_path):
    """Writes the entry that a job runs."""

    def write(code):
        path = tmp_path / "entry.py"
        path.write_text(code)
        return path

    return write
