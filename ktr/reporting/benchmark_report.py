"""An evaluation's tables and plots on disk: `results.md`, `results.csv`, and one self-contained `report.html`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ktr.reporting.benchmark_tables import (
    COUNTS,
    csv_comparison,
    csv_table,
    figure_counts,
    figure_text,
    markdown_comparison,
    markdown_tables,
)
from ktr.reporting.charts import Mark, interval_track
from ktr.reporting.files import write_atomic
from ktr.reporting.html import definitions, element, escape, page, table

SCALE = '<span class="scale"><i>0</i><i>50</i><i>100 %</i></span>'
DIFFERENCE_SCALE = '<span class="scale"><i>-50</i><i>0</i><i>+50</i></span>'
MEANINGS = {
    "vision": "what the answers owe to the video: full minus the question alone",
    "order": "what they owe to the order of its frames: full minus shuffled",
    "motion": "what they owe to more than one frame: full minus the middle frame alone",
}


def write_benchmarks(folder: str | Path, summary: Mapping[str, Any], *, title: str) -> Path:
    """Writes the three files; returns the page's path."""
    folder = Path(folder)
    write_atomic(folder / "results.md", markdown_tables(summary))
    write_atomic(folder / "results.csv", csv_table(summary))
    sections = [header("ktr evaluation", title, _source(summary)), _overview(summary)]
    sections += [_benchmark(name, result) for name, result in summary["benchmarks"].items()]
    return write_atomic(folder / "report.html", page(title, "\n".join(sections)))


def write_comparison(folder: str | Path, summary: Mapping[str, Any]) -> Path:
    """Writes the three files of a comparison; returns the page's path."""
    folder = Path(folder)
    write_atomic(folder / "results.md", markdown_comparison(summary))
    write_atomic(folder / "results.csv", csv_comparison(summary))
    sections = [header("ktr comparison", "A against B", f"A: {summary['a']}. B: {summary['b']}.")]
    sections += [_comparison(name, one) for name, one in summary["comparisons"].items()]
    return write_atomic(folder / "report.html", page("A against B", "\n".join(sections)))


def _source(summary: Mapping[str, Any]) -> str:
    if summary.get("rescored"):
        return f"Replies of {summary['rescored']}, parsed and scored again."
    return f"Model: {summary['model']}." if summary.get("model") else "Replies that were given, no model."


def header(over: str, title: str, verdict: str) -> str:
    return (
        f'<header class="top"><p class="over">{escape(over)}</p><h1>{escape(title)}</h1>'
        f'<p class="verdict">{escape(verdict)}</p></header>'
    )


def _overview(summary: Mapping[str, Any]) -> str:
    rows = []
    for name, result in summary["benchmarks"].items():
        for view, own in result["views"].items():
            figure = own["figures"][result["headline"]]
            rows.append(
                [
                    escape(name if len(result["views"]) == 1 else f"{name}, {view}"),
                    escape(result["headline"]),
                    _figure(figure["interval"], share=figure["share"]),
                    _track(name, figure["interval"], "rl" if view == result["view"] else "base"),
                    *(f"{figure_counts(figure)[count]:,}" for count in COUNTS),
                ]
            )
    head = ["Benchmark", "Figure", "% (95 %)", SCALE, *(count.replace("_", " ") for count in COUNTS)]
    note = (
        "Over all rows: unreadable media, cut-off replies and replies without an answer count as wrong, in columns of "
        "their own, as do answers that no judge has scored. Intervals: 95 %, bootstrap over rows."
    )
    return section("Results", f'<p class="lead">{escape(note)}</p>' + table(head, rows))


def _benchmark(name: str, result: Mapping[str, Any]) -> str:
    parts = []
    figures = list(result["figures"].values())
    if len(figures) > 1:
        body = [
            [
                escape(figure["name"]),
                f"{figure['rows']:,}",
                _figure(figure["interval"], share=figure["share"]),
                _track(figure["name"], figure["interval"], "rl") if figure["share"] else "",
            ]
            for figure in figures
        ]
        parts.append(table(["Figure", "Rows", "", SCALE], body))
    for split, scores in {"category": result["by_kind"], **result["by_facet"]}.items():
        if scores:
            body = [
                [
                    escape(value),
                    f"{score['rows']:,}",
                    f"{score['answered']:,}",
                    _figure(score["accuracy"]),
                    _track(value, score["accuracy"], "sft"),
                ]
                for value, score in scores.items()
            ]
            parts.append(f"<h3>By {escape(split)}</h3>")
            parts.append(table([escape(split).capitalize(), "Rows", "Answered", "Accuracy", SCALE], body))
    if result["sampled"]:
        body = [
            [escape(key), _figure(interval), _track(key, interval, "rl")] for key, interval in result["sampled"].items()
        ]
        parts += ["<h3>Several samples a row</h3>", table(["Figure", "", SCALE], body)]
    if result["differences"]:
        body = [
            [escape(f"{key}: {MEANINGS[key]}"), _difference(found), _difference_track(key, found)]
            for key, found in result["differences"].items()
        ]
        parts += ["<h3>What the score rests on</h3>", table(["Difference", "Points", DIFFERENCE_SCALE], body)]
    parts.append(f"<details><summary>Settings</summary>{definitions(result['settings'])}</details>")
    return section(name, "".join(parts))


def _comparison(name: str, one: Mapping[str, Any]) -> str:
    body = [
        [
            "all",
            f"{one['rows']:,}",
            _figure(one["a"]),
            _figure(one["b"]),
            _difference(one["difference"]),
            _difference_track("all", one["difference"]),
        ]
    ]
    body += [
        [
            escape(kind),
            f"{part['rows']:,}",
            f"{100 * part['a']:.1f}",
            f"{100 * part['b']:.1f}",
            _difference(part["difference"]),
            _difference_track(kind, part["difference"]),
        ]
        for kind, part in one["by_kind"].items()
    ]
    sure = "The interval leaves out 0." if one["clear"] else "The interval holds 0: no clear difference."
    lead = f"A is better on {one['better']} rows, worse on {one['worse']}, the same on {one['same']}. {sure}"
    head = ["Category", "Rows", "A", "B", "A - B, points", DIFFERENCE_SCALE]
    return section(name, f'<p class="lead">{escape(lead)}</p>' + table(head, body))


def section(title: str, content: str) -> str:
    return element("section", f"<h2>{escape(title)}</h2>{content}")


def _figure(interval: Mapping[str, float], *, share: bool = True) -> str:
    mean, _, bounds = figure_text(interval["mean"], interval["low"], interval["high"], share=share).partition(" ")
    return f"<b>{mean}</b> <small>{bounds.strip('()').replace('-', ' to ')}</small>"


def _difference(found: Mapping[str, float]) -> str:
    mean, low, high = (100 * found[key] for key in ("mean", "low", "high"))
    return f"<b>{mean:+.1f}</b> <small>{low:+.1f} to {high:+.1f}</small>"


def _track(name: str, interval: Mapping[str, float], color: str) -> str:
    return interval_track([Mark(name, interval["mean"], interval["low"], interval["high"], color)])


def _difference_track(name: str, found: Mapping[str, float]) -> str:
    """Differences of -50 to +50 points on a track whose middle is 0; longer ones end at its edge."""
    mean, low, high = (min(max(found[key] + 0.5, 0.0), 1.0) for key in ("mean", "low", "high"))
    return interval_track([Mark(name, mean, low, high, "rl", "diamond")], ceiling=0.5, ceiling_name="no difference")
