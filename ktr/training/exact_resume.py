"""What transformers' trainer leaves out of a checkpoint, so that a resumed run is the unbroken one bit for bit.

Transformers restores weights, optimizer, scheduler, its own counters and the random states. Here are added: the order
of rows at the right epoch, sums and metrics between two logs, what the trainer itself keeps, and how long the records
of the run were.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.data_loader import SkipBatchSampler
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel

from ktr.data.row_sampler import RowSampler
from ktr.training.checkpoints import STAGING, CheckpointError, checkpoints_in, publish, rotate
from ktr.training.run_folder import RunFolder

if TYPE_CHECKING:
    from transformers import Trainer as _Trainer
else:
    _Trainer = object

# What writing raises when a disk is full or read-only: Python, torch.save and safetensors each have their own.
WRITE_ERRORS = (OSError, RuntimeError, SafetensorError)


class Resumable(_Trainer):
    """Put before a transformers trainer: checkpoints are whole or absent, and hold all that exact resume needs.

    `folder`, where set, is the run folder whose records belong to the run.
    """

    folder: RunFolder | None = None
    _staging: Path | None = None
    _resume_from: Path | None = None
    _rows_left_over = 0
    _seconds_before = 0.0
    _began = 0.0

    # TRL's card describes a model without a name; a run folder says by itself what was trained.
    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        pass

    def own_state(self) -> dict[str, Any]:
        """What a trainer adds, as JSON holds it; the same is given to `load_own_state`."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        pass

    def train(self, resume_from_checkpoint: str | Path | None = None, **kwargs: Any) -> Any:
        self._resume_from = None if resume_from_checkpoint is None else Path(resume_from_checkpoint)
        self._began = time.time()
        return super().train(
            resume_from_checkpoint=None if resume_from_checkpoint is None else str(resume_from_checkpoint), **kwargs
        )

    # Transformers looks for the names of the model's parameters in the file, where older names are saved: it finds none
    # of a vision-language model's, warns, and would go on with the weights that the stage began with.
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        model = self.model if model is None else model
        if self.is_fsdp_enabled or not isinstance(model, PreTrainedModel):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        saved = type(model).from_pretrained(resume_from_checkpoint, dtype=model.dtype)
        model.load_state_dict(saved.state_dict())

    # The sampler counts its own epochs, and transformers would take one more step of a stage that has all of them.
    def _run_epoch(self, **kwargs: Any) -> None:
        self._restore()
        if self.state.global_step < self.state.max_steps:
            loader = kwargs["train_dataloader"]
            _row_sampler(loader).set_epoch(kwargs["epoch"])
            self._rows_left_over = len(loader.dataset) % loader.total_batch_size
            super()._run_epoch(**kwargs)

    # Accelerate forgets how many ranks share a batch where batches are skipped, and with that how many rows of an
    # epoch's last batch are not repetitions, which metrics leave out.
    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        batches = super().get_batch_samples(*args, **kwargs)
        loader = self.accelerator.gradient_state.active_dataloader
        if loader is not None and isinstance(loader.batch_sampler, SkipBatchSampler):
            loader.remainder = self._rows_left_over
        return batches

    # The mean loss and the speed of a stage are over all of its steps, those before a break too.
    def _finalize_training(self, trial: Any, num_train_samples: int, start_time: float) -> Any:
        self._restore()
        return super()._finalize_training(trial, num_train_samples, start_time - self._seconds_before)

    def _get_output_dir(self, trial: Any) -> str:
        return super()._get_output_dir(trial) if self._staging is None else str(self._staging)

    # Written aside by all ranks, then moved into place by one.
    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self.args.output_dir)
        staging, name = folder / STAGING, f"checkpoint-{self.state.global_step}"
        is_main = self.is_world_process_zero()
        if is_main:
            shutil.rmtree(staging, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        failure: BaseException | None = None
        try:
            self._staging = staging
            super()._save_checkpoint(model, trial)
            rank_file(staging / name, self.args.process_index).write_text(json.dumps(self._state_of_rank()))
        except WRITE_ERRORS as error:
            failure = error
        finally:
            self._staging = None
        self._agree(failure)
        if is_main:
            try:
                publish(staging / name, folder / name)
                shutil.rmtree(staging)
                rotate(folder, self.args.save_total_limit)
            except OSError as error:
                failure = error
        self._agree(failure)

    def _agree(self, failure: BaseException | None) -> None:
        """Ends all ranks together where one of them could not write."""
        own = None if failure is None else getattr(failure, "strerror", None) or str(failure).splitlines()[0]
        reasons = [reason for reason in gather_object([own]) if reason is not None]
        if not reasons:
            return
        folder = Path(self.args.output_dir)
        if self.is_world_process_zero():
            shutil.rmtree(folder / STAGING, ignore_errors=True)
        kept = checkpoints_in(folder)
        raise CheckpointError(
            f"the checkpoint of step {self.state.global_step} could not be written to {folder}: {reasons[0]}. "
            f"{f'{kept[0].name} is untouched' if kept else 'There is no earlier one of this stage'}; make room for one "
            "more checkpoint there, or make it writable, and go on with resume=RUN_FOLDER"
        ) from failure

    def _state_of_rank(self) -> dict[str, Any]:
        return {
            "loss_since_log": float(self._tr_loss),
            "loss_total": self._total_loss_scalar,
            "last_logged": self._globalstep_last_logged,
            "seconds": self._seconds_before + time.time() - self._began,
            "metrics": dict(self._metrics["train"]),
            "train_tokens": self._total_train_tokens,
            "own": self.own_state(),
            "records": {} if self.folder is None else self.folder.record_sizes(),
        }

    def _restore(self) -> None:
        """Sets what transformers has just reset, once."""
        if self._resume_from is None:
            return
        state = json.loads(rank_file(self._resume_from, self.args.process_index).read_text())
        self._resume_from = None
        self._tr_loss = torch.tensor(state["loss_since_log"], device=self.args.device)
        self._total_loss_scalar = state["loss_total"]
        self._globalstep_last_logged = state["last_logged"]
        self._initial_global_step = 0
        self._seconds_before = state["seconds"]
        self._metrics["train"].update(state["metrics"])
        self._total_train_tokens = state["train_tokens"]
        self.load_own_state(state["own"])


def rank_file(checkpoint: Path, rank: int) -> Path:
    return checkpoint / f"rank_state_{rank}.json"


def record_sizes_of(checkpoint: Path) -> dict[str, int]:
    """How long each record of the run was when the checkpoint was written, in bytes by file name."""
    sizes: dict[str, int] = json.loads(rank_file(checkpoint, 0).read_text())["records"]
    return sizes


def _row_sampler(loader: DataLoader) -> RowSampler:
    """The sampler beneath what accelerate has wrapped around it."""
    sampler: Any = loader.batch_sampler
    while not isinstance(sampler, RowSampler):
        sampler = getattr(sampler, "batch_sampler", None) or sampler.sampler
    return sampler
