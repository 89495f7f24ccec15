"""A sweep's tables, as Markdown and CSV: settings with their means, main effects, every job with its state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ktr.reporting.benchmark_tables import csv_text, markdown_table
from ktr.reporting.run_figures import headlines
from ktr.reporting.sweep_statistics import (
    ABSENT,
    MainEffect,
    Setting,
    Spread,
    SweptRun,
    axes_of,
    main_effects,
    settings_of,
)

RULE = (
    "Means are over finished runs only. ± is the sample standard deviation, in brackets the 95 % interval of the mean "
    "(Student's t); one run has neither."
)
EFFECT_RULE = (
    "What a value adds to the mean over the axis' values, in blocks of finished runs that differ in this axis alone "
    "(95 % interval over the blocks)."
)
LONG_FRACTION = re.compile(r"-?\d*\.\d{5,}(e[+-]?\d+)?")


@dataclass(frozen=True)
class SweepResult:
    """A sweep as its tables and page need it: means over the axes `over` of the figures named `figures`."""

    folder: Path
    runs: Sequence[SweptRun]
    over: Sequence[str]
    figures: Sequence[str]

    @cached_property
    def settings(self) -> list[Setting]:
        return settings_of(self.runs, self.over)

    @cached_property
    def axes(self) -> list[str]:
        return axes_of(self.runs)

    @cached_property
    def fixed(self) -> dict[str, str]:
        """What all runs share."""
        return {key: value for key, value in self.runs[0].settings.items() if key not in self.axes}

    @property
    def left_out(self) -> list[SweptRun]:
        return [run for run in self.runs if not run.finished]

    def effects(self, figure: str) -> list[MainEffect]:
        return main_effects(self.runs, figure, self.over)

    def share(self, figure: str) -> bool:
        return any(run.figures[figure].share for run in self.runs if figure in run.figures)

    @property
    def verdict(self) -> str:
        """How many runs ended how; the first thing to know about a sweep."""
        counts = Counter(run.state for run in self.runs)
        told = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        left = len(self.left_out)
        return f"{len(self.runs)} jobs: {told}." + (f" {left} of them in no mean." if left else "")


def result_of(folder: Path, runs: Sequence[SweptRun], over: Sequence[str], figures: Sequence[str] = ()) -> SweepResult:
    """The result of a sweep by `figures`, or where none are named by those its finished runs are judged by.

    Raises:
        ValueError: there is no run, or no finished one has a figure that is named.
    """
    if not runs:
        raise ValueError(f"{folder} holds no job of a sweep")
    finished = [run for run in runs if run.finished]
    known = dict.fromkeys(name for run in finished for name in run.figures)
    unknown = [name for name in figures if name not in known]
    if unknown and finished:
        raise ValueError(f"no finished job has a figure {unknown[0]!r}; they have {', '.join(known) or 'none'}")
    chosen = list(figures) or list(dict.fromkeys(name for run in finished for name in headlines(run.figures)))
    return SweepResult(folder, runs, tuple(over), chosen)


def spread_text(found: Spread | None, *, share: bool, signed: bool = False) -> str:
    """`61.2 ± 0.5 (60.0 to 62.4)`: a share in percent, anything else with four digits. Signed ones go without ±."""
    if found is None:
        return ABSENT
    mean = number_text(found.mean, share=share, signed=signed)
    std = "" if found.std is None or signed else f" ± {number_text(found.std, share=share)}"
    if found.low is None or found.high is None:
        return mean + std
    low, high = (number_text(bound, share=share, signed=signed) for bound in (found.low, found.high))
    return f"{mean}{std} ({low} to {high})"


def number_text(value: float, *, share: bool, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f}" if share else f"{value:{sign}.4g}"


def setting_name(setting: Setting) -> str:
    return ", ".join(f"{axis}={shown(value)}" for axis, value in setting.values.items()) or "all runs"


def shown(value: str) -> str:
    """The long fractions of a search in four digits."""
    return f"{float(value):.4g}" if LONG_FRACTION.fullmatch(value) else value


def figure_name(result: SweepResult, figure: str) -> str:
    return f"{figure}, %" if result.share(figure) else figure


def markdown(result: SweepResult) -> str:
    """The whole result: settings, main effects, what is in no mean, every job."""
    parts = [f"# Sweep {result.folder.name}", "", result.verdict, ""]
    if result.fixed:
        parts += [f"All runs: {fixed_text(result)}", ""]
    parts += ["## Settings", "", RULE, "", *markdown_table(*settings_table(result))]
    for figure in result.figures:
        for effect in result.effects(figure):
            parts += [
                "",
                f"## {figure_name(result, figure)}: main effect of {effect.axis}",
                "",
                effect_note(effect),
                "",
            ]
            if effect.effects:
                parts += markdown_table(*effect_table(result, figure, effect))
    parts += ["", "## Jobs", "", *markdown_table(*jobs_table(result))]
    return "\n".join(parts) + "\n"


def fixed_text(result: SweepResult) -> str:
    return " ".join(f"{key}={value}" for key, value in result.fixed.items())


def settings_table(result: SweepResult) -> tuple[list[str], list[list[str]]]:
    """A row a setting; the failed and unfinished jobs of each follow as rows of their own."""
    axes = [axis for axis in result.axes if axis not in result.over]
    head = [*axes, "runs", *(figure_name(result, figure) for figure in result.figures)]
    body = []
    for setting in result.settings:
        finished = sum(run.finished for run in setting.runs)
        means = [
            spread_text(setting.spread(figure), share=result.share(figure)) + _lacking(setting, figure, finished)
            for figure in result.figures
        ]
        values = [shown(setting.values[axis]) for axis in axes]
        body.append([*values, f"{finished} of {len(setting.runs)}", *means])
        body += [
            [*values, f"job {run.number} {run.state}{_error(run)}", *(ABSENT for _ in result.figures)]
            for run in setting.runs
            if not run.finished
        ]
    return head, body


def effect_note(effect: MainEffect) -> str:
    unpaired = f"; {effect.unpaired} finished runs are in no whole block" if effect.unpaired else ""
    if not effect.effects:
        return f"No block has every value of {effect.axis}{unpaired}."
    return f"{EFFECT_RULE} {effect.blocks} whole blocks{unpaired}."


def effect_table(result: SweepResult, figure: str, effect: MainEffect) -> tuple[list[str], list[list[str]]]:
    share = result.share(figure)
    head = [effect.axis, f"mean of {figure_name(result, figure)}", "effect" + (", points" if share else "")]
    return head, [
        [shown(one.value), number_text(one.mean, share=share), spread_text(one.effect, share=share, signed=True)]
        for one in effect.effects
    ]


def jobs_table(result: SweepResult) -> tuple[list[str], list[list[str]]]:
    """Every job with its state, its values of the axes, its figures and its error."""
    head = ["job", "state", *result.axes, *(figure_name(result, figure) for figure in result.figures), "error"]
    body = []
    for run in result.runs:
        figures = [
            number_text(run.figures[figure].value, share=result.share(figure)) if figure in run.figures else ABSENT
            for figure in result.figures
        ]
        body.append([str(run.number), run.state, *map(shown, run.at(result.axes)), *figures, run.error])
    return head, body


def settings_csv(result: SweepResult) -> str:
    """A line a setting and figure, shares as fractions; `runs` entered the mean, the others did not end well."""
    axes = [axis for axis in result.axes if axis not in result.over]
    names = [*axes, "figure", "mean", "std", "low", "high", "runs", "left_out"]
    body: list[list[object]] = []
    for setting in result.settings:
        for figure in result.figures:
            found = setting.spread(figure)
            numbers = [None] * 4 if found is None else [found.mean, found.std, found.low, found.high]
            count = 0 if found is None else len(found.values)
            body.append([*(setting.values[axis] for axis in axes), figure, *numbers, count, len(setting.runs) - count])
    return csv_text(names, body)


def jobs_csv(result: SweepResult) -> str:
    """A line a job with every figure that any of them has."""
    figures = sorted({name for run in result.runs for name in run.figures})
    names = ["job", "state", *result.axes, *figures, "error", "folder"]
    body: list[list[object]] = [
        [
            run.number, run.state, *run.at(result.axes), *_values(run, figures), run.error, run.folder,
        ]
        for run in result.runs
    ]  # fmt: skip
    return csv_text(names, body)


def effects_csv(result: SweepResult) -> str:
    """A line for each value of an axis and figure."""
    names = ["figure", "axis", "value", "mean", "effect", "low", "high", "blocks", "unpaired"]
    body: list[list[object]] = [
        [
            figure, main.axis, one.value, one.mean, one.effect.mean, one.effect.low, one.effect.high, main.blocks,
            main.unpaired,
        ]
        for figure in result.figures
        for main in result.effects(figure)
        for one in main.effects
    ]  # fmt: skip
    return csv_text(names, body)


def _values(run: SweptRun, figures: Iterable[str]) -> list[float | None]:
    return [run.figures[name].value if name in run.figures else None for name in figures]


def _lacking(setting: Setting, figure: str, finished: int) -> str:
    found = setting.spread(figure)
    lacking = finished - (0 if found is None else len(found.values))
    return f", {lacking} without" if lacking else ""


def _error(run: SweptRun) -> str:
    return f": {run.error}" if run.error else ""
