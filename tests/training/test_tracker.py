"""A tracker's run is one run, however often training was cut off."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from ktr.training.tracker import Tracker, tracking


class Run:
    def __init__(self) -> None:
        self.logged, self.exit_code = [], None

    def log(self, numbers):
        self.logged.append(numbers)

    def define_metric(self, name, step_metric):
        pass

    def finish(self, exit_code):
        self.exit_code = exit_code


@pytest.fixture
def wandb(monkeypatch):
    found = SimpleNamespace(run=Run(), asked={})
    found.init = lambda **asked: found.asked.update(asked) or found.run
    monkeypatch.setitem(sys.modules, "wandb", found)
    return found


def settings(tmp_path, **more):
    return {
        "project": "p", "entity": None, "group": None, "mode": "offline", "tags": [], "run_dir": tmp_path / "toy" / "x",
        "config": {}, "is_main": True, **more,
    }  # fmt: skip


def test_steps_that_were_sent_are_not_sent_again(tmp_path, wandb):
    with tracking("wandb", **settings(tmp_path, run_id="abc", sent={"rl": 3})) as tracker:
        for step in (2, 3, 4):
            tracker.log({"loss": 0.5, "name": "x"}, stage="rl", step=step)
        tracker.log({"loss": 1.0}, stage="sft", step=1)
        tracker.log({"accuracy": 1.0}, stage="eval")
    assert wandb.asked["id"] == "abc" and wandb.asked["resume"] == "allow" and wandb.run.exit_code == 0
    assert wandb.run.logged == [
        {"rl/loss": 0.5, "rl/step": 4}, {"sft/loss": 1.0, "sft/step": 1}, {"eval/accuracy": 1.0},
    ]  # fmt: skip


def test_a_run_that_is_told_to_end_is_not_a_success(tmp_path, wandb):
    with pytest.raises(SystemExit), tracking("wandb", **settings(tmp_path)):
        raise SystemExit(143)
    assert wandb.run.exit_code == 1


def test_without_a_tracker_nothing_is_sent(tmp_path, wandb):
    with tracking("none", **settings(tmp_path)) as tracker:
        tracker.log({"loss": 1.0}, stage="rl", step=1)
    with tracking("wandb", **settings(tmp_path, is_main=False)) as tracker:
        assert isinstance(tracker, Tracker) and tracker.run is None
    assert not wandb.asked
