"""What a sweep says: means over seeds with their intervals, and the main effects of its axes.

Only runs that finished enter a mean; how many of a setting did not is kept beside it. Few seeds are too few for a
bootstrap, so intervals are Student's: mean ± t(0.975, n - 1) s / sqrt(n), with s the sample standard deviation. One
run has neither deviation nor interval.

A main effect is measured within blocks: runs that differ in one axis alone, seed included in what they share. A block
that lacks a value of the axis (its run failed, or the search never tried it) is left out and counted, because a value
would otherwise be judged by other company than its rivals.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scipy.special import stdtrit  # Quantiles of Student's t; scipy.stats takes a second to import.

from ktr.reporting.run_figures import Figures

FINISHED, FAILED, RUNNING, PENDING = "finished", "failed", "running", "pending"
ABSENT = "-"
Key = tuple[str, ...]


@dataclass(frozen=True)
class SweptRun:
    """One job of a sweep: `settings` are its overrides by key, `error` is the first line of why it failed."""

    number: int
    settings: Mapping[str, str]
    folder: Path
    state: str
    error: str = ""
    figures: Figures = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.state == FINISHED

    def at(self, axes: Iterable[str]) -> Key:
        return tuple(self.settings.get(axis, ABSENT) for axis in axes)


@dataclass(frozen=True)
class Spread:
    """A mean over runs; `std` is the sample standard deviation, `low` and `high` bound the 95 % interval."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class Setting:
    """The runs that differ in nothing but the axes averaged over."""

    values: Mapping[str, str]
    runs: Sequence[SweptRun]

    @property
    def left_out(self) -> Counter[str]:
        """How many runs are in no mean, by their state."""
        return Counter(run.state for run in self.runs if not run.finished)

    def spread(self, figure: str) -> Spread | None:
        return spread([run.figures[figure].value for run in self.runs if run.finished and figure in run.figures])


@dataclass(frozen=True)
class Effect:
    """What a value of an axis adds to the mean of its blocks; `mean` is its own over the same blocks."""

    axis: str
    value: str
    mean: float
    effect: Spread


@dataclass(frozen=True)
class MainEffect:
    """One axis: an effect for each of its values, over `blocks`; `unpaired` finished runs are in none of them."""

    axis: str
    effects: Sequence[Effect]
    blocks: int
    unpaired: int


def spread(values: Sequence[float]) -> Spread | None:
    """None for no values."""
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count == 1:
        return Spread(mean, None, None, None, tuple(values))
    std = statistics.stdev(values)
    half = float(stdtrit(count - 1, 0.975)) * std / math.sqrt(count)
    return Spread(mean, std, mean - half, mean + half, tuple(values))


def axes_of(runs: Sequence[SweptRun]) -> list[str]:
    """The keys that are not the same in all runs, in the order of the command line."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    return [key for key in keys if len({run.settings.get(key, ABSENT) for run in runs}) > 1]


def settings_of(runs: Sequence[SweptRun], over: Sequence[str]) -> list[Setting]:
    """The settings of a sweep in the order of its jobs, each with the runs that differ in `over` alone."""
    axes = [axis for axis in axes_of(runs) if axis not in over]
    groups: dict[Key, list[SweptRun]] = defaultdict(list)
    for run in runs:
        groups[run.at(axes)].append(run)
    return [Setting(dict(zip(axes, key, strict=True)), group) for key, group in groups.items()]


def main_effects(runs: Sequence[SweptRun], figure: str, over: Sequence[str]) -> list[MainEffect]:
    """The effect of each axis but `over` on a figure."""
    axes = axes_of(runs)
    return [_main_effect(runs, axis, axes, figure) for axis in axes if axis not in over]


def numeric_points(runs: Sequence[SweptRun], axis: str, figure: str) -> list[tuple[float, float]]:
    """The value of an axis and the figure of each finished run; none where a value is no number."""
    points = []
    for run in runs:
        if run.finished and figure in run.figures:
            try:
                points.append((float(run.settings.get(axis, ABSENT)), run.figures[figure].value))
            except ValueError:
                return []
    return points


def _main_effect(runs: Sequence[SweptRun], axis: str, axes: Sequence[str], figure: str) -> MainEffect:
    values = list(dict.fromkeys(run.settings.get(axis, ABSENT) for run in runs))
    others = [other for other in axes if other != axis]
    blocks: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.finished and figure in run.figures:
            blocks[run.at(others)][run.settings.get(axis, ABSENT)].append(run.figures[figure].value)
    cells = [
        {value: statistics.fmean(block[value]) for value in values}
        for block in blocks.values()
        if all(value in block for value in values)
    ]
    unpaired = sum(
        sum(map(len, block.values())) for block in blocks.values() if any(value not in block for value in values)
    )
    effects = []
    for value in values if cells else ():
        found = spread([cell[value] - statistics.fmean(cell.values()) for cell in cells])
        assert found is not None
        effects.append(Effect(axis, value, statistics.fmean(cell[value] for cell in cells), found))
    return MainEffect(axis, effects, len(cells), unpaired)
