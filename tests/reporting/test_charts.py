"""Charts are valid SVG, place values where they belong, and say their numbers in text."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from ktr.reporting.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MAX_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    Mark,
    Series,
    interval_track,
    line_chart,
    moving_mean,
    nice_ticks,
    swatch,
)


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (-0.013, 0.02), (3, 3), (0, 0), (1e-6, 2e-6), (-5, 123456), (0.999, 1.001), (0.1, math.nextafter(0.1, 1))],
)
def test_ticks_cover_the_range_evenly(low, high):
    ticks = nice_ticks(low, high, 4)
    assert 2 <= len(ticks) <= 7
    assert ticks[0] <= low + 1e-12 and ticks[-1] >= high - 1e-12
    steps = [b - a for a, b in zip(ticks, ticks[1:], strict=False)]
    assert max(steps) == pytest.approx(min(steps))


def test_moving_mean_keeps_length_and_level():
    assert moving_mean([2.0] * 7, 3) == [2.0] * 7
    assert moving_mean([0, 3, 0, 3, 0], 3) == [1.5, 1, 2, 1, 1.5]
    assert moving_mean([1.0]) == [1.0]


def test_line_spans_the_plot_area():
    chart = parsed(line_chart("Reward", [Series("mean", ((1, 0.0), (5, 0.5), (9, 1.0)), "rl")]))
    path = next(node for node in chart.iter("path") if node.get("class") == "raw")
    points = [tuple(map(float, pair.split())) for pair in path.get("d")[1:].split("L")]
    assert points[0] == (LEFT, HEIGHT - BOTTOM)
    assert points[-1] == (WIDTH - RIGHT, TOP)
    assert chart.find("svg").get("aria-label") == "Reward: mean ends at 1"
    assert [node.text for node in chart.iter("title")][1] == "mean, step 5: 0.5"


def test_gaps_and_long_runs():
    rows = tuple((step, math.nan if step % 2 else 1.0) for step in range(5000))
    chart = parsed(line_chart("Loss", [Series("loss", rows, "sft")]))
    assert 100 < len(list(chart.iter("circle"))) <= MAX_POINTS
    assert line_chart("Loss", [Series("loss", ((1, math.inf),), "sft")]) == ""
    assert line_chart("Loss", []) == ""
    single = parsed(line_chart("Loss", [Series("loss", ((3, 0.5),), "sft")]))
    assert [node.get("class") for node in single.iter("circle")] == ["dot only"]


def test_legend_appears_for_several_lines_and_names_are_escaped():
    lines = [Series("<i>a", ((1, 1.0), (2, 2.0)), "rl"), Series("b", ((1, 1.0), (2, 3.0)), "sft")]
    chart = parsed(line_chart("<script>", lines))
    assert [node.text for node in chart.iter("span") if node.get("class") == "key"] == ["<i>a", "b"]
    assert chart.find("figcaption").text == "<script>"


def test_interval_track_places_means_bounds_and_ceiling():
    marks = [Mark("base", 0.25, 0.2, 0.3, "base"), Mark("rl", 0.5, 0.4, 0.6, "rl", "diamond")]
    track = parsed(interval_track(marks, ceiling=1 / 3, ceiling_name="best"))
    whiskers = [(node.get("x1"), node.get("x2")) for node in track.iter("line") if node.get("class") == "whisker"]
    assert whiskers == [("20.00%", "30.00%"), ("40.00%", "60.00%")]
    assert next(track.iter("circle")).get("cx") == "25.00%"
    titles = [node.text for node in track.iter("title")]
    assert titles == [
        "best 33.3%",
        "base 25.0%, 95 % interval 20.0% to 30.0%",
        "rl 50.0%, 95 % interval 40.0% to 60.0%",
    ]
    assert parsed(interval_track([])).tag == "svg"
    assert parsed(swatch("rl", "square")).find("svg/rect") is not None
