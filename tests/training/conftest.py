from __future__ import annotations

import gc

import pytest
from small_models import FAMILIES, SMALL

from ktr.models.toy_model import build_toy_checkpoint


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    return {family: build_toy_checkpoint(root / family, family=family, seed=3, size=SMALL) for family in FAMILIES}


@pytest.fixture(scope="session", autouse=True)
def cheap_collections():
    """A trainer collects garbage after every run: what is imported by now need not be walked each time."""
    gc.collect()
    gc.freeze()
