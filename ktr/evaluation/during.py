"""Evaluation during training: the same rows every so many steps, with the code that measures finished checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ktr.evaluation.metrics import accuracy, by_category, counts
from ktr.evaluation.records import Record, RecordWriter
from ktr.evaluation.runner import evaluate
from ktr.evaluation.scoring import ReplyScorer
from ktr.evaluation.views import Encoder
from ktr.rollout.engine import RolloutEngine, SamplingSettings
from ktr.training.run_folder import RunFolder
from ktr.training.tracker import Tracker

logger = logging.getLogger(__name__)


class EvaluateEvery(TrainerCallback):
    """Answers held-out rows every `every_steps` steps and logs `eval/accuracy`, by kind too.

    The ranks share the rows; records of a step lie in `records/<stage>_step_<n>.jsonl`. Rows are read anew each time,
    the model's mode is put back, and sampling draws from generators of its own, so training goes on as without it.

    Args:
        engine: built once around the model being trained.
        rows: a fixed held-out subset, see `subset`.
    """

    def __init__(
        self,
        engine: Callable[[nn.Module], RolloutEngine],
        encoder: Encoder,
        rows: Sequence[Any],
        settings: SamplingSettings,
        *,
        stage: str,
        every_steps: int,
        folder: RunFolder,
        tracker: Tracker,
        scorer: ReplyScorer,
        seed: int = 0,
        batch_size: int = 16,
        on_error: str = "raise",
    ) -> None:
        self.build_engine = engine
        self.encoder = encoder
        self.rows = rows
        self.settings = settings
        self.stage = stage
        self.every_steps = every_steps
        self.folder = folder
        self.tracker = tracker
        self.scorer = scorer
        self.seed = seed
        self.batch_size = batch_size
        self.on_error = on_error
        self.engine: RolloutEngine | None = None

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        if state.global_step % self.every_steps or model is None:
            return
        if self.engine is None:
            self.engine = self.build_engine(model)
        trained = model.training
        model.eval()
        own = evaluate(
            self.engine,
            self.encoder,
            self.rows[args.process_index :: args.world_size],
            self.settings,
            seed=self.seed,
            batch_size=self.batch_size,
            scorer=self.scorer,
            on_error="raise" if self.on_error == "raise" else "record",
            progress=False,
        )
        model.train(trained)
        records = self._in_order(gather_object(own) if args.world_size > 1 else own)
        if state.is_world_process_zero:
            self._keep(records, state.global_step)

    def _in_order(self, records: Sequence[Record]) -> list[Record]:
        by_id = {record.id: record for record in records}
        return [by_id[row.id] for row in self.rows]

    def _keep(self, records: Sequence[Record], step: int) -> None:
        path = Path(self.folder.path) / "records" / f"{self.stage}_step_{step}.jsonl"
        path.unlink(missing_ok=True)  # Left by a run that was killed past this step and is now resumed.
        with RecordWriter(path) as file:
            file.write(records)
        found = counts(records)
        metrics: dict[str, float] = {
            "eval/accuracy": accuracy(records, resamples=100).mean,
            "eval/answered": found.answered_share,
            "eval/truncated": found.truncated / len(records),
        }
        kinds = by_category(records, resamples=100)
        if len(kinds) > 1:
            metrics |= {f"eval/accuracy/{kind}": score.accuracy.mean for kind, score in kinds.items()}
        self.folder.append(self.folder.metrics, {"stage": self.stage, "step": step, **metrics})
        self.tracker.log(metrics, stage=self.stage, step=step)
        logger.info("%s step %d: held-out accuracy %.1f %%", self.stage, step, 100 * metrics["eval/accuracy"])


def subset(rows: Sequence[Any], count: int) -> list[Any]:
    """At most `count` rows, evenly spread over the list and always the same."""
    if len(rows) <= count:
        return list(rows)
    return [rows[int((place + 0.5) * len(rows) / count)] for place in range(count)]
