"""Charts of a sweep as SVG: a row a setting with its runs, mean and interval; a dot a run of a search."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

from ktr.reporting.charts import nice_ticks
from ktr.reporting.html import attribute, escape
from ktr.reporting.sweep_statistics import Spread

WIDTH, LABEL, ROW, TOP, BOTTOM, RIGHT = 720, 270, 24, 8, 26, 24
LONGEST_LABEL = 40
SCATTER = 260
CHART_RULES = (".grid", ".ceiling", ".whisker", ".run", ".tick", ".end")


@dataclass(frozen=True)
class DotRow:
    """A name and what was measured under it; None draws the name alone."""

    name: str
    spread: Spread | None


def dot_chart(title: str, rows: Sequence[DotRow], *, share: bool, zero: bool = False) -> str:
    """An `<svg>` with one row each: runs as small dots, the mean as a large one, its 95 % interval as a line.

    Shares are drawn in percent. `zero` draws a line there, for differences. Empty text when nothing was measured.
    """
    scale = 100.0 if share else 1.0
    known = [row.spread for row in rows if row.spread is not None]
    if not known:
        return ""
    reach = [scale * value for one in known for value in (*one.values, one.low, one.high) if value is not None]
    ticks = nice_ticks(min([*reach, 0.0] if zero else reach), max([*reach, 0.0] if zero else reach), 6)
    height = TOP + ROW * len(rows) + BOTTOM

    def x(value: float) -> float:
        return LABEL + (scale * value - ticks[0]) / (ticks[-1] - ticks[0]) * (WIDTH - LABEL - RIGHT)

    bottom = height - BOTTOM
    parts = [f'<text class="tick end" x="{LABEL - 12}" y="{bottom + 16}">{escape(title)}</text>']
    for tick in ticks:
        place = x(tick / scale)
        parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick middle" x="{place:.1f}" y="{bottom + 16}">{tick:g}</text>')
    if zero:
        parts.append(f'<line class="ceiling" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{TOP}" y2="{bottom}"/>')
    for number, row in enumerate(rows):
        parts.append(_row(row, TOP + ROW * number + ROW / 2, x, scale))
    label = f"{title}: " + ", ".join(f"{row.name} {_text(row.spread, scale)}" for row in rows)
    return (
        f'<svg class="dots" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{attribute(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def scatter_chart(title: str, axis: str, points: Sequence[tuple[float, float]], *, share: bool) -> str:
    """An `<svg>` with a dot a run: the value of an axis across, what was measured up."""
    scale = 100.0 if share else 1.0
    xs, ys = [x for x, _ in points], [scale * y for _, y in points]
    ticks_x, ticks_y = nice_ticks(min(xs), max(xs), 6), nice_ticks(min(ys), max(ys), 5)
    bottom, left = SCATTER - BOTTOM - ROW, LABEL / 3

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - ticks_x[0]) / (ticks_x[-1] - ticks_x[0]) * (WIDTH - left - RIGHT)
        up = (y - ticks_y[0]) / (ticks_y[-1] - ticks_y[0]) * (bottom - TOP)
        return left + across, bottom - up

    parts = []
    for tick in ticks_y:
        y = place(0, tick)[1]
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{left - 8}" y="{y + 4:.1f}">{tick:g}</text>')
    for tick in ticks_x:
        parts.append(f'<text class="tick middle" x="{place(tick, 0)[0]:.1f}" y="{bottom + 16}">{tick:g}</text>')
    parts.append(f'<text class="tick end" x="{WIDTH - RIGHT}" y="{SCATTER - 8}">{escape(axis)}</text>')
    for x, y in zip(xs, ys, strict=True):
        across, up = place(x, y)
        tip = f"<title>{escape(f'{axis} {x:.4g}: {y:.4g}')}</title>"
        parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" style="fill:var(--c-rl)">{tip}</circle>')
    label = attribute(f"{title} of {len(points)} runs by {axis}")
    return f'<svg class="dots" viewBox="0 0 {WIDTH} {SCATTER}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def standalone(svg: str) -> str:
    """A chart as a file of its own: the page's rules for charts in it, colours as values, since few readers of SVG know
    variables."""
    page = resources.files("ktr.reporting").joinpath("style.css").read_text(encoding="utf-8")
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", page.partition("@media")[0]))
    rules = " ".join(line for line in page.splitlines() if line.startswith(CHART_RULES))
    rules = re.sub(r"font: (\d+px) [^;]+;", r"font-size: \1; font-family: sans-serif;", rules)
    style = f"<style>{escape(rules)}</style>"
    styled = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1)
    return re.sub(r"var\(--([\w-]+)\)", lambda match: values[match[1]], styled)


def _row(row: DotRow, y: float, x: Callable[[float], float], scale: float) -> str:
    name = row.name if len(row.name) <= LONGEST_LABEL else f"{row.name[: LONGEST_LABEL - 1]}…"
    tip = f"<title>{escape(f'{row.name}: {_text(row.spread, scale)}')}</title>"
    parts = [f'<text class="tick end" x="{LABEL - 12}" y="{y + 4}">{escape(name)}</text>']
    found = row.spread
    if found is not None:
        color = 'style="stroke:var(--c-rl)"'
        if found.low is not None and found.high is not None:
            ends = f'x1="{x(found.low):.1f}" x2="{x(found.high):.1f}" y1="{y}" y2="{y}"'
            parts.append(f'<line class="whisker" {ends} {color}/>')
        if len(found.values) > 1:
            parts += [f'<circle class="run" cx="{x(value):.1f}" cy="{y}" r="2.5"/>' for value in found.values]
        parts.append(f'<circle cx="{x(found.mean):.1f}" cy="{y}" r="4.5" style="fill:var(--c-rl)"/>')
    return f'<g class="mark">{tip}{"".join(parts)}</g>'


def _text(found: Spread | None, scale: float) -> str:
    if found is None:
        return "no finished run"
    mean = f"{scale * found.mean:.4g}"
    if found.low is None or found.high is None:
        return f"{mean} (one run)"
    return f"{mean}, 95 % interval {scale * found.low:.4g} to {scale * found.high:.4g}, {len(found.values)} runs"
