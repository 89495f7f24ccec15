"""Killed at any moment and gone on with: the same numbers as an unbroken run, no sample twice, none lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import pytest

from ktr.evaluation.benchmark_summary import benchmark_summary
from ktr.evaluation.records import read_records
from ktr.evaluation.runner import evaluate
from ktr.rollout.engine import SamplingSettings

KILLS = 20
NUM_ROWS = 400


class SlowEngine:
    """Waits a moment before each batch, so that kills fall into every part of the loop."""

    def __init__(self, engine):
        self.engine = engine

    def generate(self, *arguments):
        time.sleep(0.002)
        return self.engine.generate(*arguments)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_twenty_kills_leave_the_numbers_of_an_unbroken_run(engine, encoder, row, tmp_path, temperature):
    rows = [
        row(f"row-{number}", path="missing.mp4" if number % 50 == 7 else "clip.mp4", answer="AB"[number % 2],
            category=("colour", "motion")[number % 3 == 0])
        for number in range(NUM_ROWS)
    ]  # fmt: skip
    settings = SamplingSettings(8, temperature)
    samples = 1 if temperature == 0 else 3

    def run(path):
        return evaluate(
            SlowEngine(engine), encoder, rows, settings, batch_size=4, num_samples=samples, record_path=path,
            identity="weights", progress=False,
        )  # fmt: skip

    started = time.monotonic()
    unbroken = run(tmp_path / "unbroken.jsonl")
    seconds = time.monotonic() - started
    path = tmp_path / "killed.jsonl"
    whole = (tmp_path / "unbroken.jsonl").stat().st_size
    moments = random.Random(0)
    grown = []
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                run(path)
            os._exit(0)
        time.sleep(moments.uniform(0, 0.5 * seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        size = path.stat().st_size if path.exists() else 0
        grown.append(size)
        if size > 0.8 * whole:  # Nearly done: cut at any byte, so that the next kill falls into work again.
            os.truncate(path, moments.randrange(size // 2))
    resumed = run(path)
    assert len(set(grown)) > 5, "the kills did not fall into the run"
    assert resumed == unbroken
    on_disk = read_records(path).records
    assert len(on_disk) == len({record.key for record in on_disk}) == NUM_ROWS * samples
    assert benchmark_summary({"full": on_disk}, resamples=200) == benchmark_summary({"full": unbroken}, resamples=200)
