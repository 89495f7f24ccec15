"""Training through the cache: the losses of a run without it, and nothing decoded or encoded the second time."""

from __future__ import annotations

import json

import pytest

from ktr.config.compose import compose
from ktr.config.overrides import quote
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.data import frame_store
from ktr.models.families import Family
from ktr.training import pipeline

TIMES = ("time", "per_second", "runtime", "wait_share", "seconds")


def train(root, run, *overrides):
    options = ["debug=fast", "stages=[sft,rl]", "sft.max_steps=2", "trainer.max_steps=2", "trainer.beta=0.1"]
    config = validate(compose("train", [*options, f"output_dir={quote(str(root))}", *overrides]), TrainConfig)
    folder = pipeline.run(config, root / run).parent
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not any(time in k for time in TIMES)} for line in lines]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


@pytest.mark.slow
@pytest.mark.parametrize("frozen", ["false", "true"])
def test_a_run_from_the_cache_has_the_losses_of_a_run_without(root, frozen, monkeypatch):
    cache = root / f"cache-{frozen}"
    setting = f"model.freeze_vision={frozen}"
    plain = train(root, f"plain-{frozen}", setting)
    first = train(root, f"first-{frozen}", setting, f"data.cache={quote(str(cache))}")
    assert first == plain

    def decoded(*args, **settings):
        raise AssertionError("a cached file was decoded again")

    monkeypatch.setattr(frame_store, "load_frames", decoded)
    if frozen == "true":
        monkeypatch.setattr(Family, "encode_vision", decoded)
    assert train(root, f"second-{frozen}", setting, f"data.cache={quote(str(cache))}") == plain


@pytest.mark.slow
def test_workers_that_decode_ahead_change_nothing(root):
    assert train(root, "workers", "data.workers=2") == train(root, "no-workers", "data.workers=0")


def test_the_share_of_time_spent_waiting_is_recorded(root):
    train(root, "waits")
    lines = [json.loads(line) for line in (root / "waits" / "metrics.jsonl").read_text().splitlines()]
    shares = [line["data/wait_share"] for line in lines if "loss" in line]
    assert len(shares) == 4 and all(0 <= share < 1 for share in shares)
