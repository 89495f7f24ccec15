"""Training that is cut off at a step and goes on from its checkpoint, as the pipeline does it, for the tests."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trainer_cases import make_sft_trainer, make_trainer, read_lines, without_times
from transformers import TrainerCallback

from ktr.training.checkpoints import newest_whole
from ktr.training.exact_resume import record_sizes_of
from ktr.training.run_folder import RunFolder
from ktr.training.stopping import SafePoints, StopRequest


class Break(Exception):
    """Stands for whatever ended the process."""


class BreakAfter(TrainerCallback):
    """Ends training at the start of the step after `step`, when that one's checkpoint and records are written."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise Break


class Draws(TrainerCallback):
    """Takes a number from every global generator at each step."""

    def __init__(self) -> None:
        self.drawn: list[tuple[float, ...]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.drawn.append((random.random(), float(np.random.rand()), float(torch.rand(1))))


def train(
    stage: str,
    checkpoint: Path,
    root: Path,
    rows: list[Any],
    run: str,
    *,
    break_after: int | None = None,
    is_main: bool = True,
    **options: Any,
) -> Any:
    """Trains in the run folder `run`, from its newest whole checkpoint where it has one; the trainer afterwards."""
    folder = RunFolder(root / run, is_main=is_main)
    steps = folder.path / "steps"
    found = newest_whole(steps) if steps.exists() else None
    if found is not None:
        folder.cut_records(record_sizes_of(found))
    make = make_sft_trainer if stage == "sft" else make_trainer
    ends = [BreakAfter(break_after)] if break_after is not None else []
    callbacks = [*options.pop("callbacks", ()), SafePoints(StopRequest(folder.path)), *ends]
    trainer = make(checkpoint, root, rows, run=run, callbacks=callbacks, is_main=is_main, **options)
    trainer.folder = folder
    with contextlib.suppress(Break):
        trainer.train(resume_from_checkpoint=found)
    return trainer


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def assert_same_files(found: Path, expected: Path) -> None:
    """Two run folders with one record, one set of weights and one result."""
    metrics, others = (without_times(read_lines(run / "metrics.jsonl")) for run in (found, expected))
    assert metrics == others
    assert (found / "completions.jsonl").read_text() == (expected / "completions.jsonl").read_text()
    for stage in ("sft", "rl"):
        weights = [(run / "checkpoints" / stage / "model.safetensors").read_bytes() for run in (found, expected)]
        assert weights[0] == weights[1], stage
    accuracy = [json.loads((run / "summary.json").read_text())["accuracy"] for run in (found, expected)]
    assert accuracy[0] == accuracy[1]
