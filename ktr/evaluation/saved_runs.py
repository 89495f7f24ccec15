"""Runs read back from their folders: comparing two of them row by row, and scoring saved replies again."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ktr.config.convert import to_node
from ktr.config.schema_eval import EvalConfig
from ktr.evaluation.metrics import accuracy, by_category, paired_difference, row_scores
from ktr.evaluation.records import Record, read_records

logger = logging.getLogger(__name__)

RunRecords = dict[str, dict[str, list[Record]]]  # by benchmark (or checkpoint) and view


def load_run(path: str | Path) -> RunRecords:
    """The records of a run folder, or of one record file.

    Raises ValueError where there are none.
    """
    path = Path(path).expanduser()
    files = [path] if path.is_file() else sorted((path / "records").glob("*.jsonl"))
    found: RunRecords = {}
    for file in files:
        for record in read_records(file).records:
            name = file.stem.removesuffix(f"_{record.view}")
            found.setdefault(name, {}).setdefault(record.view, []).append(record)
    if not found:
        raise ValueError(f"{path} holds no records: give a run folder of evaluate.py or train.py, or a record file")
    return found


def saved_settings(path: str | Path) -> EvalConfig:
    """The `eval` settings that a run was made with; the defaults for a record file alone."""
    file = Path(path).expanduser() / "config.yaml"
    if not file.is_file():
        logger.warning("%s has no config.yaml: its replies are scored with the default settings", path)
        return EvalConfig()
    return to_node(EvalConfig, yaml.safe_load(file.read_text(encoding="utf-8"))["eval"], "eval")


def settings_for(name: str, saved: EvalConfig, asked: EvalConfig) -> EvalConfig:
    """How the replies of a benchmark were scored, with what is now asked otherwise."""
    settings = saved.members.get(name, saved)
    default = EvalConfig()
    changed = {
        key: getattr(asked, key)
        for key in ("policy", "require_tags", "regression")
        if getattr(asked, key) != getattr(default, key)
    }
    return dataclasses.replace(settings, **changed, judge=asked.judge, bootstrap=asked.bootstrap)


def compare_runs(a: RunRecords, b: RunRecords, *, resamples: int = 2000, seed: int = 0) -> dict[str, Any]:
    """`A - B` on the same rows, by benchmark and view: difference with its paired 95 % interval, and who won where.

    Runs of one benchmark each are compared whatever they are called.

    Raises ValueError when the runs have nothing in common, or not the same rows.
    """
    if len(a) == len(b) == 1:
        b = {next(iter(a)): next(iter(b.values()))}
    pairs = [(name, view) for name in a for view in a[name] if view in b.get(name, {})]
    if not pairs:
        raise ValueError(f"the runs have no benchmark and view in common: {sorted(a)} and {sorted(b)}")
    left_out = sorted({*a, *b} - {name for name, _ in pairs})
    if left_out:
        logger.warning("only one of the runs has %s, which is left out", ", ".join(left_out))
    options = {"resamples": resamples, "seed": seed}
    return {f"{name} {view}": _comparison(a[name][view], b[name][view], options) for name, view in pairs}


def _comparison(a: Sequence[Record], b: Sequence[Record], options: Mapping[str, int]) -> dict[str, Any]:
    difference = paired_difference(a, b, **options)
    scores_a, scores_b = row_scores(a), row_scores(b)
    kinds_a, kinds_b = by_category(a, **options), by_category(b, **options)
    by_kind = {}
    for kind in kinds_a.keys() & kinds_b.keys() if len(kinds_a) > 1 else ():
        own = [[record for record in side if (record.category or record.problem_type) == kind] for side in (a, b)]
        by_kind[kind] = {
            "rows": kinds_a[kind].counts.rows,
            "a": kinds_a[kind].accuracy.mean,
            "b": kinds_b[kind].accuracy.mean,
            "difference": paired_difference(own[0], own[1], **options).to_dict(),
        }
    return {
        "rows": len(scores_a),
        "a": accuracy(a, **options).to_dict(),
        "b": accuracy(b, **options).to_dict(),
        "difference": difference.to_dict(),
        "better": sum(scores_a[row_id] > scores_b[row_id] for row_id in scores_a),
        "worse": sum(scores_a[row_id] < scores_b[row_id] for row_id in scores_a),
        "same": sum(scores_a[row_id] == scores_b[row_id] for row_id in scores_a),
        "clear": difference.low > 0 or difference.high < 0,
        "by_kind": dict(sorted(by_kind.items())),
    }
