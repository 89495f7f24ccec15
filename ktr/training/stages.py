"""The training stages: from a checkpoint and rows to a checkpoint that loads alone, processor included.

Both take `resume_from`, a checkpoint of the stage's own steps to go on from, and raise `Interrupted` when `request` was
told to end.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import PartialState
from transformers import PrinterCallback, TrainerCallback, set_seed
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from ktr import components
from ktr.config.schemas import TrainConfig
from ktr.data.row_sampler import ReadableRows
from ktr.data.rows import Row
from ktr.evaluation.benchmark_run import asked_of, encoder_of
from ktr.evaluation.during import EvaluateEvery, subset
from ktr.models.loading import LoadedModel
from ktr.models.prompt_encoder import PromptEncoder
from ktr.training.arguments import grpo_arguments, sft_arguments
from ktr.training.callbacks import MetricsFile, ProgressBar, StopOnBrokenLoss
from ktr.training.checkpoints import move_into_place
from ktr.training.exact_resume import Resumable
from ktr.training.grpo_trainer import KeyTokenGRPOTrainer
from ktr.training.mixed_media import shards_weights, whole_weights
from ktr.training.precision import warn_of_lost_steps
from ktr.training.run_folder import RunFolder, json_line
from ktr.training.sft_trainer import supervised_trainer
from ktr.training.stopping import SafePoints, StopRequest
from ktr.training.tracker import Tracker

logger = logging.getLogger(__name__)

DEFAULT_PACKED_TOKENS = 32768


def supervised_stage(
    config: TrainConfig,
    folder: RunFolder,
    tracker: Tracker,
    start: Path | str,
    rows: Sequence[Row],
    media_root: Path | None,
    *,
    request: StopRequest,
    held_out: Sequence[Row] = (),
    resume_from: Path | None = None,
) -> Path:
    """Fine-tunes the checkpoint `start` on the rationales of `rows`; returns the new checkpoint."""
    set_seed(config.seed)
    loaded, encoder = _load(config, start, media_root)
    trainer = supervised_trainer(
        loaded.model,
        loaded.processor,
        encoder,
        rows,
        sft_arguments(
            config.sft,
            folder.checkpoints / "sft_steps",
            seed=config.seed,
            workers=components.decoding_workers(config.data, config.sft.batch_size // config.sft.gradient_accumulation),
            checkpointing=config.model.gradient_checkpointing,
            deepspeed=config.model.deepspeed,
        ),
        peft_config=components.adapters(config.model),
        callbacks=[
            *_callbacks(folder, tracker, "sft"),
            *_during(config, folder, tracker, "sft", loaded, held_out, media_root),
            SafePoints(request),
        ],
        readable=_readable(config, folder, "sft", rows, encoder),
        mixed_media=config.data.mixed_media,
    )
    trainer.folder = folder
    _train(trainer, resume_from, request)
    return _save(trainer, loaded, folder.checkpoints / "sft", folder)


def reinforcement_stage(
    config: TrainConfig,
    folder: RunFolder,
    tracker: Tracker,
    start: Path | str,
    rows: Sequence[Row],
    media_root: Path | None,
    *,
    request: StopRequest,
    held_out: Sequence[Row] = (),
    resume_from: Path | None = None,
) -> Path:
    """Improves the checkpoint `start` by GRPO with key tokens on `rows`; returns the new checkpoint."""
    set_seed(config.seed)
    loaded, encoder = _load(config, start, media_root)
    sampling = components.training_sampling(config.rollout)
    trainer = KeyTokenGRPOTrainer(
        loaded.model,
        loaded.processor,
        encoder,
        rows,
        grpo_arguments(
            config.trainer,
            folder.checkpoints / "rl_steps",
            seed=config.seed,
            workers=components.decoding_workers(config.data, config.trainer.groups_per_step),
            checkpointing=config.model.gradient_checkpointing,
            deepspeed=config.model.deepspeed,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        ),
        rollout=lambda model: components.rollout_engine(config.rollout, model, loaded, plugins=config.plugins),
        sampling=sampling,
        rewards=components.reward_runner(config.reward, config.plugins),
        key_tokens=components.key_token_settings(config.ktr),
        objective=components.objective_settings(config.trainer, config.ktr, max_new_tokens=sampling.max_new_tokens),
        folder=folder,
        max_packed_tokens=config.trainer.max_packed_tokens or DEFAULT_PACKED_TOKENS,
        packing=config.trainer.packing,
        scale_advantages="group" if config.trainer.scale_advantages else "none",
        zero_variance=config.trainer.zero_variance,
        resample_limit=config.trainer.resample_limit,
        alarm_steps=config.reward.alarm_steps,
        log_completions_every=config.trainer.log_completions_every,
        mixed_media=config.data.mixed_media,
        readable=_readable(config, folder, "rl", rows, encoder),
        peft_config=components.adapters(config.model),
        callbacks=[
            *_callbacks(folder, tracker, "rl"),
            *_during(config, folder, tracker, "rl", loaded, held_out, media_root),
            SafePoints(request),
        ],
    )
    _train(trainer, resume_from, request)
    return _save(trainer, loaded, folder.checkpoints / "rl", folder)


def free_memory() -> None:
    """Between stages: what the last trainer held goes back before the next checkpoint is loaded."""
    unset_hf_deepspeed_config()  # Else the next model would be loaded in parts.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _train(trainer: Resumable, resume_from: Path | None, request: StopRequest) -> None:
    if not (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled):  # Those keep a float32 copy of what they train.
        warn_of_lost_steps(trainer.model, trainer.args.learning_rate)
    trainer.remove_callback(PrinterCallback)  # The progress bar and metrics.jsonl say it better.
    if resume_from is not None:
        step = int(resume_from.name.rpartition("-")[2])
        if 0 < trainer.args.max_steps < step:
            raise ValueError(f"resume: {resume_from} has {step} steps and max_steps={trainer.args.max_steps} is fewer")
    if shards_weights(trainer.args) and any(isinstance(c, EvaluateEvery) for c in trainer.callback_handler.callbacks):
        raise ValueError(
            "eval.every_steps needs whole weights on every rank, which ZeRO-3 and FSDP do not keep: leave it"
        )
    bars = [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, ProgressBar)]
    try:
        trainer.train(resume_from_checkpoint=resume_from)
    finally:
        for bar in bars:
            bar.close()
    signum = request.agreed
    if signum and trainer.state.global_step < trainer.state.max_steps:
        saved = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
        raise request.interrupt(signum, f"with {saved}")


def _load(config: TrainConfig, start: Path | str, media_root: Path | None) -> tuple[LoadedModel, PromptEncoder]:
    loaded = components.policy_model(config.model, start)
    return loaded, components.prompt_encoder(config.data, loaded, media_root)


def _callbacks(folder: RunFolder, tracker: Tracker, stage: str) -> list[TrainerCallback]:
    return [MetricsFile(folder, stage), ProgressBar(stage), StopOnBrokenLoss(), tracker.callback(stage)]


def _during(
    config: TrainConfig,
    folder: RunFolder,
    tracker: Tracker,
    stage: str,
    loaded: LoadedModel,
    held_out: Sequence[Row],
    media_root: Path | None,
) -> list[TrainerCallback]:
    """The evaluation that `eval.every_steps` asks for, on `eval.every_rows` of the held-out rows."""
    if config.eval.every_steps is None:
        return []
    asked = asked_of(config.eval, held_out, media_root)
    return [
        EvaluateEvery(
            lambda model: components.rollout_engine(config.rollout, model, loaded, plugins=config.plugins),
            encoder_of(config.eval, config.data, loaded, asked.media_root),
            subset(asked.rows, config.eval.every_rows),
            components.evaluation_sampling(config.eval),
            stage=stage,
            every_steps=config.eval.every_steps,
            folder=folder,
            tracker=tracker,
            scorer=asked.scorer,
            seed=config.seed,
            batch_size=config.eval.batch_size,
            on_error=config.data.on_error,
        )
    ]


def _readable(
    config: TrainConfig, folder: RunFolder, stage: str, rows: Sequence[Row], encoder: PromptEncoder
) -> ReadableRows | None:
    """The test that `data.on_error=skip` asks for; skipped rows are listed in `skipped.jsonl`."""
    if config.data.on_error != "skip":
        return None

    skipped = folder.path / "skipped.jsonl"
    listed = skipped.read_text(encoding="utf-8").split("\n") if skipped.exists() else []

    def record(row: Row, error: Exception) -> None:
        line = {"stage": stage, "id": row.id, "path": row.media.path if row.media else None, "error": str(error)}
        if json_line(line) not in listed:  # A run that goes on meets the same rows again.
            folder.append(skipped, line)

    step_rows = config.sft.batch_size if stage == "sft" else config.trainer.groups_per_step
    ahead = components.rows_ahead(config.data, step_rows * PartialState().num_processes)
    return ReadableRows(rows, encoder.encode, record, ahead=ahead, threads=max(config.data.workers, 1))


def _save(trainer: Resumable, loaded: LoadedModel, path: Path, folder: RunFolder) -> Path:
    """The whole model, adapters merged in, beside its processor: loads with nothing else. There as a whole or not."""
    with whole_weights(trainer.model_wrapped, trainer.accelerator):
        if folder.is_main:
            model = trainer.accelerator.unwrap_model(trainer.model)
            if hasattr(model, "merge_and_unload"):
                model = model.merge_and_unload()
            staged = path.with_name(f".{path.name}")
            model.save_pretrained(staged)
            loaded.processor.save_pretrained(staged)
            move_into_place(staged, path)
            logger.info("saved %s", path)
    return path
