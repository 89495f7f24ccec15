"""Weights & Biases as a copy of `metrics.jsonl`: one run for all stages, finished on every exit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Tracker:
    """Sends metrics to a W&B run; without a run every method does nothing.

    `sent` holds the last step of each stage that the run was sent before a break: what is measured again is not sent
    again.
    """

    def __init__(self, run: Any | None = None, sent: Mapping[str, int] | None = None) -> None:
        self.run = run
        self.sent = dict(sent or {})

    def log(self, metrics: dict[str, Any], *, stage: str, step: int | None = None) -> None:
        """Numbers under `<stage>/`, against `<stage>/step`, so that stages do not share one axis."""
        if self.run is None or (step is not None and step <= self.sent.get(stage, -1)):
            return
        numbers = {f"{stage}/{key}": value for key, value in metrics.items() if isinstance(value, int | float)}
        self.run.log(numbers if step is None else {**numbers, f"{stage}/step": step})

    def callback(self, stage: str) -> TrainerCallback:
        return _TrackerCallback(self, stage)


class _TrackerCallback(TrainerCallback):
    def __init__(self, tracker: Tracker, stage: str) -> None:
        self.tracker = tracker
        self.stage = stage

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero:
            self.tracker.log(logs or {}, stage=self.stage, step=state.global_step)


@contextmanager
def tracking(
    name: str,
    *,
    project: str,
    entity: str | None,
    group: str | None,
    mode: Literal["online", "offline"],
    tags: list[str],
    run_dir: Path,
    config: dict[str, Any],
    is_main: bool,
    run_id: str | None = None,
    sent: Mapping[str, int] | None = None,
) -> Iterator[Tracker]:
    """A tracker for the block: `name` is `none` or `wandb`. The W&B run is named after the run folder.

    `run_id` is that of a W&B run to go on with, or a new one; `sent` what it holds already (see `Tracker`).
    """
    if name == "none" or not is_main:
        yield Tracker()
        return
    import wandb

    run = wandb.init(
        project=project,
        entity=entity,
        group=group,
        mode=mode,
        tags=tags,
        name=f"{run_dir.parent.name}/{run_dir.name}",
        dir=str(run_dir),
        config=config,
        reinit="finish_previous",
        id=run_id,
        resume=None if run_id is None else "allow",
    )
    for stage in ("sft", "rl", "eval"):
        run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
    failed = True
    try:
        yield Tracker(run, sent)
        failed = False
    finally:
        run.finish(exit_code=int(failed))
