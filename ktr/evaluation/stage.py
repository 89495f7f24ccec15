"""The evaluation stage of a run: every checkpoint on the held-out rows, under its views, then the report."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ktr import components
from ktr.config.schema_eval import EvalConfig
from ktr.config.schemas import RunConfig, TrainConfig
from ktr.data.rows import Row
from ktr.data.run_rows import RunRows
from ktr.evaluation.attribution_probe import attribution_aurocs
from ktr.evaluation.benchmark_run import Asked, ViewRecords, asked_of, encoder_of, identity_of, run_views
from ktr.evaluation.metrics import accuracy
from ktr.evaluation.records import Record
from ktr.models.loading import LoadedModel
from ktr.models.prompt_encoder import PromptEncoder
from ktr.reporting.examples import example_pages
from ktr.reporting.report import write_report
from ktr.reporting.summary import Summary, build_summary, summary_table, write_summary
from ktr.reporting.tokens import TokenPage
from ktr.training.run_folder import RunFolder, versions
from ktr.training.tracker import Tracker

logger = logging.getLogger(__name__)

NUM_EXAMPLES = 6
PROBE_ROWS = 256


def evaluation_stage(
    config: TrainConfig,
    folder: RunFolder,
    tracker: Tracker,
    checkpoints: Mapping[str, Path | str],
    rows: RunRows,
    *,
    started: float,
) -> Path:
    """Measures `checkpoints` (by stage name) where the run evaluates, writes `summary.json` and `report.html`.

    Returns the path of `summary.json`.
    """
    full: dict[str, list[Record]] = {}
    shuffled: dict[str, list[Record]] = {}
    attribution: dict[str, float | None] = {}
    examples: list[TokenPage] = []
    others: dict[str, list[Record]] = {}
    if "eval" in config.stages:
        asked = asked_of(config.eval, rows.eval, rows.media_root)
        for stage, path in checkpoints.items():
            if stage == "base" and not config.eval.base and len(checkpoints) > 1:
                continue
            loaded = components.policy_model(config.model, path)
            encoder = encoder_of(config.eval, config.data, loaded, asked.media_root)
            found = evaluate_checkpoint(
                config, config.eval, loaded, encoder, path, asked, folder.path / "records", name=stage
            )
            full[stage], shuffled[stage] = found.get("full", []), found.get("shuffled", [])
            others |= {f"{stage} {view}": own for view, own in found.items() if view not in ("full", "shuffled")}
            last = stage == list(checkpoints)[-1]
            if rows.world is not None and stage in ("base", "sft"):
                measured = attribution_aurocs(
                    loaded,
                    encoder,
                    asked.rows[:PROBE_ROWS],
                    rows.world.token_truth(loaded.processor.tokenizer),
                    seed=config.seed,
                )
                attribution.update(measured if stage == "sft" else {f"base_{k}": v for k, v in measured.items()})
            if last:
                settings = components.key_token_settings(config.ktr)
                examples = example_pages(
                    loaded, encoder, _spread(asked.rows, NUM_EXAMPLES), full[stage], settings, seed=config.seed
                )
    summary = build_summary(
        full,
        shuffled=shuffled,
        attribution=attribution,
        order_blind=None if rows.world is None else rows.world.order_blind,
        seconds=round(time.monotonic() - started, 1),
        resamples=config.eval.bootstrap,
        seed=config.seed,
    )
    if others:
        summary["other_views"] = {
            name: accuracy(own, resamples=config.eval.bootstrap, seed=config.seed).to_dict()
            for name, own in others.items()
        }
    _record(summary, folder, tracker)
    path = write_summary(folder.path / "summary.json", summary)
    write_report(
        folder.path / "report.html",
        title=f"{config.name} {folder.path.name}",
        summary=summary,
        curves=folder.read_metrics(),
        examples=examples,
        config_text=(folder.path / "config.yaml").read_text(encoding="utf-8"),
        versions=versions(),
    )
    if full:
        Console(stderr=True).print(summary_table(summary))
    return path


def evaluate_checkpoint(
    config: RunConfig,
    settings: EvalConfig,
    loaded: LoadedModel,
    encoder: PromptEncoder,
    checkpoint: Path | str,
    asked: Asked,
    records: Path,
    *,
    name: str,
) -> ViewRecords:
    """Records of one checkpoint under each view that `settings.views` lists."""
    return run_views(
        components.rollout_engine(config.rollout, loaded.model, loaded, plugins=config.plugins),
        encoder,
        asked,
        settings,
        identity=identity_of(settings, config.model, checkpoint, encoder),
        seed=config.seed,
        records=records,
        name=name,
        on_error="raise" if config.data.on_error == "raise" else "record",
    )


def _record(summary: Summary, folder: RunFolder, tracker: Tracker) -> None:
    """The final figures as one line of `metrics.jsonl`, and in the tracker."""
    metrics = {f"accuracy/{stage}": value for stage, value in summary["accuracy"].items() if value is not None}
    metrics |= {f"accuracy_shuffled/{stage}": v for stage, v in summary["accuracy_shuffled"].items() if v is not None}
    metrics |= {f"attribution/{name}": value for name, value in summary["attribution"].items() if value is not None}
    if metrics:
        folder.append(folder.metrics, {"stage": "eval", **metrics})
        tracker.log(metrics, stage="eval")


def _spread(rows: Sequence[Row], count: int) -> list[Row]:
    """Rows of as many different kinds as there are, in their order."""
    chosen: list[Row] = []
    seen: set[str] = set()
    for row in rows:
        kind = row.category or row.problem_type
        if kind not in seen:
            seen.add(kind)
            chosen.append(row)
    rest = [row for row in rows if row not in chosen]
    return [*chosen, *rest][:count]
