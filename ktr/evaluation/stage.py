"""The evaluation stage of a run: every checkpoint on the held-out rows, in order and shuffled, then the report."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ktr import components
from ktr.config.schema_running import EvalConfig
from ktr.config.schemas import RunConfig, TrainConfig
from ktr.data.rows import Row
from ktr.data.run_rows import RunRows
from ktr.evaluation.attribution_probe import attribution_aurocs
from ktr.evaluation.records import Record
from ktr.evaluation.runner import evaluate
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
    if "eval" in config.stages:
        for stage, path in checkpoints.items():
            if stage == "base" and not config.eval.base and len(checkpoints) > 1:
                continue
            loaded = components.policy_model(config.model, path)
            encoder = components.prompt_encoder(config.data, loaded, rows.media_root)
            full[stage], shuffled[stage] = evaluate_checkpoint(
                config, config.eval, loaded, encoder, rows.eval, folder.path / "records", name=stage
            )
            last = stage == list(checkpoints)[-1]
            if rows.world is not None and stage in ("base", "sft"):
                measured = attribution_aurocs(
                    loaded,
                    encoder,
                    rows.eval[:PROBE_ROWS],
                    rows.world.token_truth(loaded.processor.tokenizer),
                    seed=config.seed,
                )
                attribution.update(measured if stage == "sft" else {f"base_{k}": v for k, v in measured.items()})
            if last:
                settings = components.key_token_settings(config.ktr)
                examples = example_pages(
                    loaded, encoder, _spread(rows.eval, NUM_EXAMPLES), full[stage], settings, seed=config.seed
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
    rows: Sequence[Row],
    records: Path,
    *,
    name: str,
) -> tuple[list[Record], list[Record]]:
    """Records of one checkpoint in order and, where `eval.shuffled` asks for it, with the frames shuffled."""
    engine = components.rollout_engine(config.rollout, loaded.model, loaded, plugins=config.plugins)
    chosen = list(rows[: settings.limit])
    found: dict[str, list[Record]] = {"full": [], "shuffled": []}
    for view in found:
        if view == "shuffled" and not settings.shuffled:
            continue
        found[view] = evaluate(
            engine,
            encoder,
            chosen,
            components.evaluation_sampling(settings),
            view=view,
            seed=config.seed,
            batch_size=settings.batch_size,
            on_error="raise" if config.data.on_error == "raise" else "record",
            record_path=records / f"{name}_{view}.jsonl",
            description=f"{name} {view}",
        )
    return found["full"], found["shuffled"]


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
