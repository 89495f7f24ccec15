"""Small charts as inline SVG: no script, no font, no file from elsewhere; colours come from the page's style.

Line charts draw the raw points thin and their centred moving mean thick. Interval tracks draw one mean with its
interval per mark on a shared scale from 0 to 1; each mark has a shape of its own, so colour is never the only cue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ktr.reporting.html import attribute, escape

WIDTH, HEIGHT = 360, 196
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 30
MAX_POINTS = 240
Placement = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """One line of a chart: x ascending; `color` is the name of a `--c-...` colour of the page."""

    name: str
    points: tuple[tuple[float, float], ...]
    color: str


@dataclass(frozen=True)
class Mark:
    """One mean with its interval on a track, all in [0, 1]; `shape` is circle, square or diamond."""

    name: str
    mean: float
    low: float
    high: float
    color: str
    shape: str = "circle"


def line_chart(title: str, series: Sequence[Series], *, x_label: str = "step", y_zero: bool = False) -> str:
    """A figure with axes, lines and a legend (direct when there is one line). Empty text when nothing is finite."""
    lines = [line for line in (_finite(one) for one in series) if line.points]
    if not lines:
        return ""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    ticks_y = nice_ticks(min([*ys, 0.0] if y_zero else ys), max(ys), 4)
    ticks_x = [tick for tick in nice_ticks(min(xs), max(xs), 5) if min(xs) <= tick <= max(xs)]
    x_low, x_high = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    y_low, y_high = ticks_y[0], ticks_y[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM),
        )

    parts = [_grid(ticks_x, ticks_y, place, x_label)]
    for line in lines:
        smooth = moving_mean([y for _, y in line.points])
        raw = [place(x, y) for x, y in line.points]
        mean = [place(x, y) for (x, _), y in zip(line.points, smooth, strict=True)]
        style = f'style="stroke:var(--c-{attribute(line.color)})"'
        if len(raw) > 1:
            parts.append(f'<path class="raw" d="{_path(raw)}" {style}/><path class="mean" d="{_path(mean)}" {style}/>')
        fill = f'style="fill:var(--c-{attribute(line.color)})"'
        dot = "dot only" if len(raw) == 1 else "dot"
        parts += [
            f'<circle class="{dot}" cx="{px:.1f}" cy="{py:.1f}" r="4" {fill}>'
            f"<title>{escape(f'{line.name}, {x_label} {_number(x)}: {_number(y)}')}</title></circle>"
            for (px, py), (x, y) in zip(raw, line.points, strict=True)
        ]
    label = f"{title}: " + ", ".join(f"{line.name} ends at {_number(line.points[-1][1])}" for line in lines)
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{attribute(label)}">' + "".join(parts) + "</svg>"
    return f'<figure class="chart"><figcaption>{escape(title)}{_legend(lines)}</figcaption>{svg}</figure>'


def interval_track(marks: Sequence[Mark], *, ceiling: float | None = None, ceiling_name: str = "") -> str:
    """A full-width strip from 0 to 1 with one row per mark, and a vertical tick at the ceiling."""
    row = 14
    height = row * max(1, len(marks)) + 6
    parts = [f'<line class="grid" x1="{x}%" x2="{x}%" y1="0" y2="{height}"/>' for x in (0, 25, 50, 75, 100)]
    if ceiling is not None:
        parts.append(
            f'<line class="ceiling" x1="{ceiling:.2%}" x2="{ceiling:.2%}" y1="0" y2="{height}">'
            f"<title>{escape(f'{ceiling_name} {ceiling:.1%}')}</title></line>"
        )
    for number, mark in enumerate(marks):
        y = 3 + row * number + row / 2
        color = f"var(--c-{attribute(mark.color)})"
        tip = f"{mark.name} {mark.mean:.1%}, 95 % interval {mark.low:.1%} to {mark.high:.1%}"
        parts.append(
            f'<g class="mark"><title>{escape(tip)}</title>'
            f'<line class="hit" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
            f'<line class="whisker" x1="{mark.low:.2%}" x2="{mark.high:.2%}" y1="{y}" y2="{y}" style="stroke:{color}"/>'
            f"{_shape(mark, y, color)}</g>"
        )
    return (
        f'<svg class="track" width="100%" height="{height}" role="img" '
        f'aria-label="{attribute(", ".join(f"{mark.name} {mark.mean:.1%}" for mark in marks))}">'
        + "".join(parts)
        + "</svg>"
    )


def swatch(color: str, shape: str = "circle") -> str:
    """A legend's little mark."""
    mark = Mark("", 0.5, 0.5, 0.5, color, shape)
    return f'<svg class="swatch" width="12" height="12" aria-hidden="true">{_shape(mark, 6, f"var(--c-{color})")}</svg>'


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """At least two round numbers, evenly spaced, that cover [low, high]."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * number, 12) for number in range(first, last + 1)]


def moving_mean(values: Sequence[float], window: int | None = None) -> list[float]:
    """Centred mean over an odd window (about a tenth of the length by default), shorter towards both ends."""
    half = (window if window is not None else len(values) // 10) // 2
    means = []
    for place in range(len(values)):
        around = values[max(place - half, 0) : place + half + 1]
        means.append(sum(around) / len(around))
    return means


def _finite(series: Series) -> Series:
    points = [(x, y) for x, y in series.points if math.isfinite(x) and math.isfinite(y)]
    stride = math.ceil(len(points) / MAX_POINTS) or 1
    kept = [
        (chunk[-1][0], sum(y for _, y in chunk) / len(chunk))
        for chunk in (points[start : start + stride] for start in range(0, len(points), stride))
    ]
    return Series(series.name, tuple(kept), series.color)


def _grid(ticks_x: Sequence[float], ticks_y: Sequence[float], place: Placement, x_label: str) -> str:
    parts = []
    for tick in ticks_y:
        _, y = place(0, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 7}" y="{y + 3.5:.1f}">{_number(tick)}</text>')
    for tick in ticks_x:
        x, _ = place(tick, 0)
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}">{_number(tick)}</text>')
    parts.append(f'<text class="tick end" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}">{escape(x_label)}</text>')
    return "".join(parts)


def _legend(lines: Sequence[Series]) -> str:
    if len(lines) < 2:
        return ""
    keys = "".join(
        f'<span class="key" style="--key:var(--c-{attribute(line.color)})">{escape(line.name)}</span>' for line in lines
    )
    return f'<span class="legend">{keys}</span>'


def _shape(mark: Mark, y: float, color: str) -> str:
    x, style = f"{mark.mean:.2%}", f'style="fill:{color}"'
    if mark.shape == "circle":
        return f'<circle cx="{x}" cy="{y}" r="4.5" {style}/>'
    if mark.shape == "square":
        return f'<svg x="{x}" y="{y}" overflow="visible"><rect x="-4" y="-4" width="8" height="8" {style}/></svg>'
    assert mark.shape == "diamond", f"no such mark: {mark.shape}"
    return f'<svg x="{x}" y="{y}" overflow="visible"><path d="M0-5.6 5.6 0 0 5.6-5.6 0Z" {style}/></svg>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _number(value: float) -> str:
    """Short and plain: 1,200; 0.35; 2e-05."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.0e}"
    return f"{value:.3g}"
