"""A run from its config to its summary: the stages in order, each one's checkpoint the next one's start."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from accelerate import PartialState
from transformers.utils.logging import disable_progress_bar

from ktr import components
from ktr.config.schemas import TrainConfig
from ktr.data.prompts import PromptTemplate
from ktr.data.run_rows import RunRows, load_run_rows
from ktr.evaluation.stage import evaluation_stage
from ktr.models.toy_model import ToySize, build_toy_checkpoint
from ktr.rewards import check_problem_types
from ktr.rewards.signatures import takes
from ktr.training.checkpoints import move_into_place
from ktr.training.run_folder import RunFolder
from ktr.training.run_state import RunState, enter_stage, measured_steps, on_main, open_run
from ktr.training.sampled_groups import REWARD_COLUMNS
from ktr.training.shuffled_rollouts import COLUMN, wants_shuffled
from ktr.training.stages import free_memory, reinforcement_stage, supervised_stage
from ktr.training.stopping import StopRequest, stop_requests
from ktr.training.tracker import tracking

logger = logging.getLogger(__name__)


def run(config: TrainConfig, run_dir: Path) -> Path:
    """Runs `config.stages` in `run_dir`, or what is left of them; returns the path of `summary.json`.

    Raises:
        ValueError: a setting, a row or the state of `run_dir` that the run cannot go on with.
        Interrupted: it was told to end, and can be gone on with.
    """
    started = time.monotonic()
    disable_progress_bar()  # Of loading and saving weights: seconds, and noise between the stages' own bars.
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    state = PartialState(cpu=True) if not _has_accelerator() else PartialState()
    folder = RunFolder(on_main(state, lambda: run_dir), is_main=state.is_main_process)
    try:
        progress = on_main(state, lambda: open_run(config, folder, state.num_processes))
        with stop_requests(folder.path) as request:
            return _stages(config, folder, state, progress, request, started)
    finally:
        folder.unlock()


def _stages(
    config: TrainConfig,
    folder: RunFolder,
    state: PartialState,
    progress: RunState,
    request: StopRequest,
    started: float,
) -> Path:
    with state.main_process_first():
        asked = config.stages if config.eval.every_steps is None else [*config.stages, "eval"]
        rows = load_run_rows(config.data, stages=asked, eval_splits=config.eval.splits, cache=_toy_clips(config))
        _check_rewards(config, rows)
        _check_targets(config, rows)
        start = _start(config, folder)
    checkpoints: dict[str, Path | str] = {"base": start}
    with tracking(
        **asdict(config.logger),
        run_dir=folder.path,
        config=asdict(config),
        is_main=folder.is_main,
        run_id=progress.tracker_id,
        sent=measured_steps(folder),
    ) as tracker:
        for stage, train in (("sft", supervised_stage), ("rl", reinforcement_stage)):
            if stage not in config.stages:
                continue
            finished = progress.checkpoint_of(stage, folder)
            if finished is None:
                resume_from = on_main(state, partial(enter_stage, progress, stage, folder))
                finished = train(
                    config,
                    folder,
                    tracker,
                    list(checkpoints.values())[-1],
                    getattr(rows, stage),
                    rows.media_root,
                    request=request,
                    held_out=rows.eval,
                    resume_from=resume_from,
                )
                state.wait_for_everyone()
                if folder.is_main:
                    progress.stages[stage].checkpoint = str(finished.relative_to(folder.path))
                    progress.save(folder)
                if signum := request.agreed:
                    raise request.interrupt(signum, f"with stage {stage} finished")
                free_memory()
            checkpoints[stage] = finished
        if folder.is_main:
            enter_stage(progress, "eval", folder)
            path = evaluation_stage(config, folder, tracker, checkpoints, rows, started=started)
            progress.finished = True
            progress.save(folder)
            return path
    return folder.path / "summary.json"


def _start(config: TrainConfig, folder: RunFolder) -> Path | str:
    """The checkpoint the first stage starts from; the toy model is built in the run folder."""
    if config.model.path is not None:
        return config.model.path
    toy = asdict(config.model.toy)
    sampling = config.data.sampling
    path = folder.checkpoints / "base"
    if folder.is_main and not path.exists():
        staged = path.with_name(".base")
        build_toy_checkpoint(
            staged,
            family=toy.pop("family"),
            seed=config.seed,
            patch_size=toy.pop("patch_size"),
            initializer_range=toy.pop("initializer_range"),
            max_length=toy.pop("max_length"),
            max_pixels=sampling.max_pixels,
            size=ToySize(**toy),
        )
        move_into_place(staged, path)
    return path


def _check_rewards(config: TrainConfig, rows: RunRows) -> None:
    """Finds a reward that cannot score these rows before a model is loaded."""
    check_problem_types({row.problem_type: row.id for stage in (rows.rl, rows.eval) for row in stage})
    if "rl" not in config.stages:
        return
    rewards = components.reward_runner(config.reward, config.plugins)
    shuffled = (COLUMN,) if wants_shuffled(rewards) else ()
    missing = sum(row.captions is None for row in rows.rl)
    wanting = [name for name, (function, _) in rewards.components.items() if takes(function, "captions")]
    if wanting and missing == len(rows.rl):
        raise ValueError(
            f"the reward {wanting[0]!r} needs the captions of each row's video, and no row has any: set "
            "data.captions_path to a file of timestamped captions"
        )
    if wanting and missing:
        logger.warning("%d of %d rows have no captions, which %s needs", missing, len(rows.rl), wanting[0])
    rewards.check_columns([*REWARD_COLUMNS, *shuffled])


def _check_targets(config: TrainConfig, rows: RunRows) -> None:
    """Finds a row that the warm-up could not learn from before a model is loaded."""
    template = PromptTemplate.load(config.data.prompt)
    for row in rows.sft:
        template.target(row)


def _toy_clips(config: TrainConfig) -> Path:
    """Rendered clips are shared by the runs of one output folder."""
    return Path(config.output_dir) / "toy_world"


def _has_accelerator() -> bool:
    return torch.cuda.is_available()
