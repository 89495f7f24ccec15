"""How far a run has come: `state.json` in its folder, and going on from there.

A stage that is finished has its checkpoint there. One that has begun has the length of the run's records at its start,
which is where it goes on from when it has no checkpoint of its own.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from ktr.config.resume import CONFIG, refuse_changes
from ktr.config.run_folder_name import AUTO, STATE
from ktr.config.schemas import TrainConfig
from ktr.training.checkpoints import newest_whole
from ktr.training.exact_resume import record_sizes_of
from ktr.training.run_folder import RunFolder, versions

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class StageState:
    """`records` are the sizes of the run's records when the stage began; `checkpoint` is what it ended with."""

    records: dict[str, int]
    checkpoint: str | None = None


@dataclass
class RunState:
    """What `state.json` holds; `tracker_id` names the run in a tracker."""

    world_size: int
    tracker_id: str = field(default_factory=lambda: secrets.token_hex(8))
    finished: bool = False
    stages: dict[str, StageState] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> RunState:
        values = json.loads(path.read_text(encoding="utf-8"))
        stages = {name: StageState(**stage) for name, stage in values.pop("stages").items()}
        return cls(**values, stages=stages)

    def checkpoint_of(self, stage: str, folder: RunFolder) -> Path | None:
        """The checkpoint that a finished stage left, if it is one."""
        known = self.stages.get(stage)
        return None if known is None or known.checkpoint is None else folder.path / known.checkpoint

    def save(self, folder: RunFolder) -> None:
        folder.write(STATE, asdict(self))


def open_run(config: TrainConfig, folder: RunFolder, world_size: int) -> RunState:
    """The state of the run in `folder`, which is a new one where nothing has run there. On the main process only.

    Raises:
        ValueError: the run is finished, was made by another number of processes or other settings, or another process
            is at work in it.
    """
    folder.lock()
    path = folder.path / STATE
    if not path.exists():
        if config.resume not in (None, AUTO) and not (folder.path / CONFIG).exists():
            raise ValueError(f"resume={config.resume}: no run has begun there")
        folder.write(CONFIG, yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True))
        folder.write("versions.json", versions())
        return RunState(world_size)
    state = RunState.read(path)
    if state.finished:
        raise ValueError(f"the run in {folder.path} is finished and is not opened again: begin a new one")
    if state.world_size != world_size:
        raise ValueError(
            f"the run in {folder.path} began with {state.world_size} processes, and {world_size} would change its "
            f"results: go on with {state.world_size}"
        )
    refuse_changes(config, folder.path)
    before = json.loads((folder.path / "versions.json").read_text(encoding="utf-8"))["packages"]
    now = versions()["packages"]
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            logger.warning("%s was %s when the run began and is %s now", name, before.get(name), now.get(name))
    folder.write(CONFIG, yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True))
    logger.info("goes on in %s", folder.path)
    return state


def enter_stage(state: RunState, stage: str, folder: RunFolder) -> Path | None:
    """Opens a stage that is not finished, with the records as long as they were; the checkpoint that it goes on from.

    On the main process only.
    """
    known = state.stages.get(stage)
    if known is None:
        state.stages[stage] = StageState(folder.record_sizes())
        state.save(folder)
        return None
    checkpoint = newest_whole(folder.checkpoints / f"{stage}_steps")
    folder.cut_records(known.records if checkpoint is None else record_sizes_of(checkpoint))
    logger.info("stage %s goes on from %s", stage, "its start" if checkpoint is None else checkpoint)
    return checkpoint


def measured_steps(folder: RunFolder) -> dict[str, int]:
    """The last step of each stage on record."""
    steps: dict[str, int] = {}
    for line in folder.read_metrics():
        if "step" in line:
            steps[line["stage"]] = max(line["step"], steps.get(line["stage"], 0))
    return steps


def on_main(process: PartialState, function: Callable[[], T]) -> T:
    """Calls a function on the main process; all get its result, and all end where it raised."""
    outcome: list[T | str | None] = [None, None]
    failure: Exception | None = None
    if process.is_main_process:
        try:
            outcome[0] = function()
        except (ValueError, OSError) as error:
            failure, outcome[1] = error, str(error)
    broadcast_object_list(outcome)
    if failure is not None:
        raise failure
    if outcome[1] is not None:
        raise ValueError(outcome[1])
    return outcome[0]  # type: ignore[return-value]
