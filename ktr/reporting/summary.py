"""The run's summary: accuracy of each stage with intervals, gain of RL over SFT, attribution against ground truth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from ktr.evaluation.metrics import Interval, accuracy, against_ceiling, by_category, counts, paired_difference
from ktr.evaluation.records import Record
from ktr.reporting.files import write_atomic

STAGES = ("base", "sft", "rl")
STAGE_NAMES = {"base": "base model", "sft": "after SFT", "rl": "after RL"}

Summary = dict[str, Any]
StageRecords = Mapping[str, Sequence[Record]]


def build_summary(
    full: StageRecords,
    *,
    shuffled: StageRecords | None = None,
    attribution: Mapping[str, float | None] | None = None,
    order_blind: Mapping[str, float] | None = None,
    seconds: float | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Summary:
    """The summary of a run as plain JSON values.

    Args:
        full: records of each stage (`base`, `sft`, `rl`) on the held-out rows; a stage that did not run is absent or
            empty and becomes null.
        shuffled: the same with the frames shuffled.
        attribution: `visual_auroc` and `temporal_auroc` against the ground truth, and any more figures of its kind.
        order_blind: best accuracy per kind that a reader who cannot see the order of the frames can have.
        seconds: wall time of the run.

    Keys: `accuracy`, `accuracy_shuffled` (by stage), `rl_minus_sft` (paired, `mean`, `low`, `high`), `attribution`,
    `by_kind`, `by_kind_shuffled` (kind, then stage), `seconds`; `intervals` mirrors the accuracies with their 95 %
    bounds, `rows_by_kind` and `samples` say what they rest on, `order_blind` compares the shuffled accuracies with
    their ceilings.
    """
    shuffled = shuffled or {}
    unknown = sorted({*full, *shuffled} - set(STAGES))
    if unknown:
        raise ValueError(f"unknown stages {unknown}; known are {list(STAGES)}")
    options = {"resamples": resamples, "seed": seed}
    overall = {stage: accuracy(full[stage], **options) if full.get(stage) else None for stage in STAGES}
    mixed = {stage: accuracy(shuffled[stage], **options) if shuffled.get(stage) else None for stage in STAGES}
    kinds, kinds_mixed = _kinds(full, options), _kinds(shuffled, options)
    gain = None
    if full.get("rl") and full.get("sft"):
        gain = paired_difference(full["rl"], full["sft"], **options).to_dict()
    blind = {
        stage: {kind: asdict(check) for kind, check in against_ceiling(shuffled[stage], order_blind, **options).items()}
        for stage in STAGES
        if order_blind and shuffled.get(stage)
    }
    return {
        "accuracy": _means(overall),
        "accuracy_shuffled": _means(mixed),
        "rl_minus_sft": gain,
        "attribution": {"visual_auroc": None, "temporal_auroc": None, **(attribution or {})},
        "by_kind": {kind: _means(scores) for kind, scores in kinds.items()},
        "by_kind_shuffled": {kind: _means(scores) for kind, scores in kinds_mixed.items()},
        "seconds": seconds,
        "intervals": {
            "accuracy": _bounds(overall),
            "accuracy_shuffled": _bounds(mixed),
            "by_kind": {kind: _bounds(scores) for kind, scores in kinds.items()},
            "by_kind_shuffled": {kind: _bounds(scores) for kind, scores in kinds_mixed.items()},
        },
        "order_blind": {"best": dict(order_blind or {}), "shuffled": blind},
        "rows_by_kind": _rows_by_kind(full),
        "samples": {stage: _sample_counts(full[stage]) for stage in STAGES if full.get(stage)},
    }


def write_summary(path: str | Path, summary: Summary) -> Path:
    """The summary as JSON, replaced at once. Raises ValueError for a number JSON lacks (nan, infinity)."""
    return write_atomic(path, json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def summary_table(summary: Summary) -> Table:
    """The summary for the console: one row per stage, one column per kind, percent with 95 % intervals."""
    kinds = list(summary["by_kind"])
    table = Table(title="Held-out accuracy, % (95 % interval)", title_justify="left", caption=_caption(summary))
    table.caption_justify = "left"
    table.add_column("model")
    table.add_column("all", justify="right")
    if any(value is not None for value in summary["accuracy_shuffled"].values()):
        table.add_column("frames shuffled", justify="right")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for stage in STAGES:
        if summary["accuracy"][stage] is None and summary["accuracy_shuffled"][stage] is None:
            continue
        cells = [STAGE_NAMES[stage], percent_with_bounds(interval_of(summary, "accuracy", stage))]
        if len(table.columns) == 3 + len(kinds):
            cells.append(percent_with_bounds(interval_of(summary, "accuracy_shuffled", stage)))
        table.add_row(*cells, *(_percent(summary["by_kind"][kind].get(stage)) for kind in kinds))
    return table


def interval_of(summary: Summary, name: str, stage: str, *, kind: str | None = None) -> Interval | None:
    """The interval of `accuracy`, `accuracy_shuffled`, `by_kind` or `by_kind_shuffled`; None where it was not run."""
    means, bounds = summary[name], summary["intervals"][name]
    if kind is not None:
        means, bounds = means.get(kind, {}), bounds.get(kind, {})
    if means.get(stage) is None:
        return None
    return Interval(means[stage], bounds[stage]["low"], bounds[stage]["high"])


def percent_with_bounds(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{100 * interval.mean:.1f} ({100 * interval.low:.1f}-{100 * interval.high:.1f})"


def _caption(summary: Summary) -> str:
    parts = []
    gain = summary["rl_minus_sft"]
    if gain is not None:
        low, high = 100 * gain["low"], 100 * gain["high"]
        parts.append(f"RL minus SFT: {100 * gain['mean']:+.1f} points ({low:+.1f} to {high:+.1f}, paired).")
    found = {key: value for key, value in summary["attribution"].items() if isinstance(value, float)}
    if found:
        parts.append("Attribution: " + ", ".join(f"{key} {value:.2f}" for key, value in found.items()) + ".")
    if summary["seconds"] is not None:
        parts.append(f"{summary['seconds']:.0f} s.")
    return " ".join(parts)


def _kinds(stages: StageRecords, options: Mapping[str, int]) -> dict[str, dict[str, Interval | None]]:
    tables = {stage: by_category(records, **options) for stage, records in stages.items() if records}
    names = sorted({kind for table in tables.values() for kind in table})
    return {
        kind: {
            stage: tables[stage][kind].accuracy if kind in tables.get(stage, {}) else None for stage in STAGES
        }
        for kind in names
    }  # fmt: skip


def _means(scores: Mapping[str, Interval | None]) -> dict[str, float | None]:
    return {stage: score.mean if score is not None else None for stage, score in scores.items()}


def _bounds(scores: Mapping[str, Interval | None]) -> dict[str, dict[str, float] | None]:
    return {
        stage: {"low": score.low, "high": score.high} if score is not None else None for stage, score in scores.items()
    }


def _rows_by_kind(full: StageRecords) -> dict[str, int]:
    records = next((full[stage] for stage in reversed(STAGES) if full.get(stage)), ())
    rows: dict[str, set[str]] = {}
    for record in records:
        rows.setdefault(record.category or record.problem_type, set()).add(record.id)
    return {kind: len(ids) for kind, ids in sorted(rows.items())}


def _sample_counts(records: Sequence[Record]) -> dict[str, float]:
    found = counts(records)
    mean_tokens = sum(record.num_tokens for record in records) / len(records)
    return {**asdict(found), "answered_share": found.answered_share, "mean_tokens": mean_tokens}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
