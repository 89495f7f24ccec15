"""The figures of one run by name, from its `summary.json` and `metrics.jsonl`: for searches and tables of many runs.

Names: `accuracy.rl`, `accuracy_shuffled.rl`, `by_kind.order.rl`, `rl_minus_sft`, `seconds` of a training run;
`videomme.accuracy`, `videomme.shuffled.accuracy`, `videomme.by_kind.counting` of an evaluation; `rl/reward`, `sft/loss`
of a stage's steps, over the last tenth of them. `accuracy` alone is that of the last stage measured, or the first
figure of the only benchmark.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAIN = "accuracy"
STAGES = ("rl", "sft", "base")
NOT_MEASURED = ("step", "epoch", "stage")
STEP_FIGURES = ("rl/reward", "rl/loss", "sft/loss")


@dataclass(frozen=True)
class Figure:
    """A number. A `share` is one of [0, 1] or a difference of two such, which tables show in percent; a `headline` is
    what a run is judged by when nobody names another figure."""

    value: float
    share: bool = False
    headline: bool = False


Figures = dict[str, Figure]


def run_figures(run: Path) -> Figures:
    """All figures of a run, finished or not; numbers that are null or not finite are absent."""
    found: Figures = {}
    path = run / "summary.json"
    if path.exists():
        summary = json.loads(path.read_text(encoding="utf-8"))
        found = _of_benchmarks(summary) if "benchmarks" in summary else _of_training(summary)
    found |= _of_steps(run / "metrics.jsonl")
    return {name: figure for name, figure in found.items() if math.isfinite(figure.value)}


def returned_figure(run: Path, metric: str | None) -> float | None:
    """What a search gets from a finished run: the figure `metric`, or where that is None the accuracy, if it has one.

    Raises:
        ValueError: the run has no figure of that name.
    """
    found = run_figures(run)
    if metric is not None and metric not in found:
        raise ValueError(f"metric={metric}: the run in {run} has no such figure; it has {', '.join(found) or 'none'}")
    figure = found.get(metric or MAIN)
    return None if figure is None else figure.value


def headlines(figures: Mapping[str, Figure]) -> list[str]:
    """The figures by which a run is judged when nobody names others; those of its steps where it measured no rows."""
    named = [name for name, figure in figures.items() if figure.headline]
    return named or [name for name in STEP_FIGURES if name in figures]


def _of_training(summary: Mapping[str, Any]) -> Figures:
    found: Figures = {}
    accuracies = summary.get("accuracy", {})
    last = next((stage for stage in STAGES if accuracies.get(stage) is not None), None)
    for group in ("accuracy", "accuracy_shuffled"):
        for stage, value in summary.get(group, {}).items():
            _add(found, f"{group}.{stage}", value, share=True, headline=stage == last)
    if last is not None:
        _add(found, MAIN, accuracies[last], share=True)
    _add(found, "rl_minus_sft", (summary.get("rl_minus_sft") or {}).get("mean"), share=True, headline=True)
    for name, value in summary.get("attribution", {}).items():
        _add(found, f"attribution.{name}", value)
    for group in ("by_kind", "by_kind_shuffled"):
        for kind, by_stage in summary.get(group, {}).items():
            for stage, value in by_stage.items():
                _add(found, f"{group}.{kind}.{stage}", value, share=True)
    _add(found, "seconds", summary.get("seconds"))
    return found


def _of_benchmarks(summary: Mapping[str, Any]) -> Figures:
    found: Figures = {}
    for benchmark, result in summary["benchmarks"].items():
        for view, own in result["views"].items():
            above = benchmark if view == result["view"] else f"{benchmark}.{view}"
            for figure in own["figures"].values():
                main = view == result["view"] and figure["name"] == result["headline"]
                _add(
                    found, f"{above}.{figure['name']}", figure["interval"]["mean"], share=figure["share"], headline=main
                )
        for kind, score in result["by_kind"].items():
            _add(found, f"{benchmark}.by_kind.{kind}", score["accuracy"]["mean"], share=True)
    if len(summary["benchmarks"]) == 1:
        (main_figure,) = (figure for figure in found.values() if figure.headline)
        found[MAIN] = Figure(main_figure.value, main_figure.share)
    _add(found, "seconds", summary.get("seconds"))
    return found


def _of_steps(path: Path) -> Figures:
    """The mean of each measure over the last tenth of its stage's steps; a torn last line is left out."""
    if not path.exists():
        return {}
    values: dict[str, list[float]] = defaultdict(list)
    *lines, _torn = path.read_text(encoding="utf-8").split("\n")
    for line in lines:
        row = json.loads(line)
        if "step" not in row:
            continue
        for name, value in row.items():
            if name not in NOT_MEASURED and type(value) in (int, float):
                values[f"{row['stage']}/{name}"].append(value)
    return {name: Figure(_tail_mean(known)) for name, known in values.items()}


def _tail_mean(values: list[float]) -> float:
    last = values[-math.ceil(len(values) / 10) :]
    return sum(last) / len(last)


def _add(found: Figures, name: str, value: float | None, *, share: bool = False, headline: bool = False) -> None:
    if value is not None:
        found[name] = Figure(float(value), share, headline)
