"""A run that is killed with SIGKILL at ten random moments loses the steps since its last checkpoint, and no file."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from resume_cases import assert_same_files
from trainer_cases import read_lines

from ktr.config.compose import compose
from ktr.config.overrides import quote
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.training import pipeline
from ktr.training.checkpoints import checkpoint_step, checkpoints_in, defect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS, EVERY, KILLS = 12, 3, 10
SHORT = [
    "debug=fast", f"sft.max_steps={STEPS}", f"sft.save_steps={EVERY}", f"trainer.max_steps={STEPS}",
    f"trainer.save_steps={EVERY}", "eval.base=false", "eval.views=[full]", "eval.limit=2",
]  # fmt: skip


def start(outputs: Path, run: str) -> int:
    """The run in a process of its own, which is forked from this one so that it begins at once."""
    config = validate(compose("train", [*SHORT, f"output_dir={quote(str(outputs))}"]), TrainConfig)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with open(outputs / f"{run}.log", "a") as log:
            os.dup2(log.fileno(), 1), os.dup2(log.fileno(), 2)
        pipeline.run(config, outputs / run)
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(child: int) -> bool:
    pid, status = os.waitpid(child, os.WNOHANG)
    assert status == 0, f"the run ended with status {status}"
    return pid == child


def whole_checkpoints(run: Path) -> dict[str, list[int]]:
    """The steps of each stage's checkpoints; one that is there is whole."""
    found = {}
    for stage in ("sft", "rl"):
        checkpoints = checkpoints_in(run / "checkpoints" / f"{stage}_steps")
        assert [path for path in checkpoints if defect(path)] == []
        found[stage] = [checkpoint_step(path) for path in checkpoints]
    return found


def assert_nothing_lost(run: Path, before: dict[str, list[int]]) -> dict[str, list[int]]:
    now = whole_checkpoints(run)
    metrics = run / "metrics.jsonl"
    logged = [line for line in (read_lines(metrics) if metrics.exists() else []) if "loss" in line]
    for stage in ("sft", "rl"):
        assert max(before.get(stage, []), default=0) <= max(now[stage], default=0)
        last = max((line["step"] for line in logged if line["stage"] == stage), default=0)
        assert max(now[stage], default=0) >= (last - 1) // EVERY * EVERY, f"{stage}: {last} steps, {now[stage]}"
    return now


def test_kill_9_at_ten_random_moments(tmp_path):
    draw = random.Random(0)
    began = time.monotonic()
    child = start(tmp_path, "whole")
    os.waitpid(child, 0)
    seconds = time.monotonic() - began
    assert (tmp_path / "whole" / "summary.json").exists(), (tmp_path / "whole.log").read_text()[-3000:]
    kills, runs = 0, 0
    while kills < KILLS:
        run, known = tmp_path / f"killed{runs}", {}
        runs += 1
        finished = False
        while not finished:
            child = start(tmp_path, run.name)
            moment = time.monotonic() + draw.uniform(0, 0.4 * seconds)
            while not (finished := ended(child)) and (kills == KILLS or time.monotonic() < moment):
                time.sleep(0.01)
            if not finished:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                kills += 1
                known = assert_nothing_lost(run, known)
        assert_same_files(run, tmp_path / "whole")
        assert not list(run.rglob("torn-*"))
