"""A sweep on one page: the settings and their runs, the main effects, the curves of training, every job."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path

from ktr.reporting.benchmark_report import header, section
from ktr.reporting.charts import Series, line_chart
from ktr.reporting.html import escape, page, table
from ktr.reporting.run_figures import STEP_FIGURES
from ktr.reporting.sweep_charts import DotRow, dot_chart, scatter_chart
from ktr.reporting.sweep_statistics import MainEffect, Setting, numeric_points
from ktr.reporting.sweep_tables import (
    RULE,
    SweepResult,
    effect_note,
    effect_table,
    figure_name,
    fixed_text,
    jobs_table,
    setting_name,
    settings_table,
    shown,
)

# As many lines as a reader can tell apart, and as the page has colours for.
MOST_CURVES = 8


def sweep_page(result: SweepResult, charts: dict[str, str]) -> str:
    """The page as HTML; `charts` are those of `sweep_charts_of`."""
    title = f"Sweep {result.folder.name}"
    parts = [header("ktr sweep", title, result.verdict)]
    if result.fixed:
        parts.append(f'<p class="lead">All runs: {escape(fixed_text(result))}</p>')
    plots = "".join(
        f"<h3>{escape(figure_name(result, figure))}</h3>{charts[figure]}"
        for figure in result.figures
        if figure in charts
    )
    parts.append(section("Settings", f'<p class="lead">{escape(RULE)}</p>{_table(settings_table(result))}{plots}'))
    effects = [_effect(result, figure, one, charts) for figure in result.figures for one in result.effects(figure)]
    if effects:
        parts.append(section("Main effects", "".join(effects)))
    parts.append(section("Training", _curves(result)))
    parts.append(section("Jobs", _table(jobs_table(result))))
    return page(title, "\n".join(parts))


def sweep_charts_of(result: SweepResult) -> dict[str, str]:
    """An SVG for each figure by its name, and by `FIGURE by AXIS` for the effect of each axis on it.

    An axis of numbers that were never tried in one block, as in a search, is drawn as a dot a run instead.
    """
    charts = {}
    for figure in result.figures:
        share, title = result.share(figure), figure_name(result, figure)
        rows = [DotRow(setting_name(setting), setting.spread(figure)) for setting in result.settings]
        charts[figure] = dot_chart(title, rows, share=share)
        for one in result.effects(figure):
            name = f"{figure} by {one.axis}"
            if one.effects:
                effects = [DotRow(f"{one.axis}={shown(effect.value)}", effect.effect) for effect in one.effects]
                charts[name] = dot_chart(f"{title}, effect of {one.axis}", effects, share=share, zero=True)
            elif points := numeric_points(result.runs, one.axis, figure):
                charts[name] = scatter_chart(title, one.axis, points, share=share)
    return {name: chart for name, chart in charts.items() if chart}


def _effect(result: SweepResult, figure: str, one: MainEffect, charts: dict[str, str]) -> str:
    head = f"<h3>{escape(figure_name(result, figure))} by {escape(one.axis)}</h3><p>{escape(effect_note(one))}</p>"
    effects = _table(effect_table(result, figure, one)) if one.effects else ""
    return head + effects + charts.get(f"{figure} by {one.axis}", "")


def _curves(result: SweepResult) -> str:
    """The reward or loss of the steps, a line a setting: the mean over its finished runs at each step."""
    settings = [setting for setting in result.settings if any(run.finished for run in setting.runs)]
    if len(settings) > MOST_CURVES:
        return f"<p>{len(settings)} settings are too many for one chart.</p>"
    figures = []
    for name in STEP_FIGURES:
        lines = [
            Series(setting_name(one), _mean_curve(one, name), str(place + 1)) for place, one in enumerate(settings)
        ]
        figures.append(line_chart(name, lines))
    return f'<div class="charts">{"".join(figures)}</div>' if any(figures) else "<p>No run was trained.</p>"


def _mean_curve(setting: Setting, name: str) -> tuple[tuple[float, float], ...]:
    stage, _, measure = name.partition("/")
    at_step: dict[int, list[float]] = defaultdict(list)
    for run in setting.runs:
        if run.finished:
            for step, value in _measured(run.folder / "metrics.jsonl", stage, measure):
                at_step[step].append(value)
    return tuple((step, statistics.fmean(values)) for step, values in sorted(at_step.items()))


def _measured(path: Path, stage: str, measure: str) -> list[tuple[int, float]]:
    if not path.exists():
        return []
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        (row["step"], row[measure])
        for row in rows
        if row.get("stage") == stage and "step" in row and row.get(measure) is not None
    ]


def _table(cells: tuple[list[str], list[list[str]]]) -> str:
    head, body = cells
    return table([escape(cell) for cell in head], [[escape(cell) for cell in row] for row in body])
