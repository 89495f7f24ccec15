"""What a run shows and keeps while it trains: the metrics file, a progress bar, an early stop on a broken loss."""

from __future__ import annotations

import math
from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ktr.training.run_folder import RunFolder

# Trainer bookkeeping that depends on the clock or repeats other keys.
TIME_KEYS = ("runtime", "per_second", "step_time", "seconds", "wait_share")


class MetricsFile(TrainerCallback):
    """Appends every log of the trainer to `metrics.jsonl`, with its stage and step."""

    def __init__(self, folder: RunFolder, stage: str) -> None:
        self.folder = folder
        self.stage = stage

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero and logs:
            self.folder.append(self.folder.metrics, {"stage": self.stage, "step": state.global_step, **logs})


class ProgressBar(TrainerCallback):
    """One bar a stage: step, ETA and the few numbers a person watches (loss or reward, accuracy, kept tokens)."""

    SHOWN = {"reward": "reward", "accuracy": "rewards/accuracy/mean", "kept": "key_tokens/kept/union", "loss": "loss"}

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.bar: tqdm | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self.bar = tqdm(
                total=state.max_steps, initial=state.global_step, desc=self.stage, dynamic_ncols=True, unit="step"
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.bar is not None and logs:
            shown = {label: logs[key] for label, key in self.SHOWN.items() if isinstance(logs.get(key), float)}
            if shown:
                self.bar.set_postfix({label: f"{value:.3f}" for label, value in shown.items()})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the bar's line, so that what is written next stands on its own."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class StopOnBrokenLoss(TrainerCallback):
    """Ends the run when the loss is not finite: later steps would only spread the damage."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        loss = (logs or {}).get("loss")
        if isinstance(loss, float) and not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} at step {state.global_step}: lower the learning rate, or look at the last rows of "
                "completions.jsonl for what was sampled"
            )
