"""An evaluation's summary as one flat table, and that table as CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

COUNTS = (
    "rows", "samples", "answered", "no_answer", "truncated", "media_error", "prompt_too_long", "no_reply", "judged",
    "unjudged",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One number of a benchmark with its bounds. `group` is what it is about: a figure, or the facet it is split by."""

    benchmark: str
    view: str
    group: str
    name: str
    mean: float
    low: float
    high: float
    rows: int
    answered: int | None = None
    share: bool = True

    @property
    def text(self) -> str:
        return figure_text(self.mean, self.low, self.high, share=self.share)


def figure_text(mean: float, low: float, high: float, *, share: bool = True) -> str:
    """`61.2 (58.0-64.4)`: a share in percent, anything else as it is."""
    scale, digits = (100.0, 1) if share else (1.0, 3)
    return f"{scale * mean:.{digits}f} ({scale * low:.{digits}f}-{scale * high:.{digits}f})"


def figure_counts(figure: Mapping[str, Any]) -> dict[str, int]:
    """A figure's own `COUNTS`: the rows it is the mean of, and how the samples behind them ended."""
    return {**figure["counts"], "rows": figure["rows"]}


def lines(summary: Mapping[str, Any]) -> Iterator[Line]:
    """All numbers of all benchmarks: the figures of each view, then categories, facets, samples, differences."""
    for benchmark, result in summary["benchmarks"].items():
        for view, own in result["views"].items():
            for figure in own["figures"].values():
                yield Line(
                    benchmark, view, "figure", figure["name"], **figure["interval"], rows=figure["rows"],
                    answered=figure["counts"]["answered"], share=figure["share"],
                )  # fmt: skip
        splits = {"category": result["by_kind"], **result["by_facet"]}
        for group, scores in splits.items():
            for name, score in scores.items():
                yield Line(
                    benchmark, result["view"], group, name, **score["accuracy"], rows=score["rows"],
                    answered=score["answered"],
                )  # fmt: skip
        rows = result["samples"]["rows"]
        for name, interval in result["sampled"].items():
            yield Line(benchmark, result["view"], "samples", name, **interval, rows=rows)
        for name, found in result["differences"].items():
            bounds = {key: found[key] for key in ("mean", "low", "high")}
            yield Line(benchmark, f"full - {found['view']}", "difference", name, **bounds, rows=rows)


def csv_table(summary: Mapping[str, Any]) -> str:
    """One line a number, shares as fractions."""
    names = [field.name for field in fields(Line)]
    return csv_text(names, [[asdict(line)[name] for name in names] for line in lines(summary)])


def csv_comparison(summary: Mapping[str, Any]) -> str:
    """One line a comparison, whole or by category."""
    names = ["comparison", "category", "rows", "a", "b", "difference", "low", "high"]
    body: list[list[Any]] = []
    for name, one in summary["comparisons"].items():
        difference = one["difference"]
        body.append(
            [
                name,
                "",
                one["rows"],
                one["a"]["mean"],
                one["b"]["mean"],
                *(difference[k] for k in ("mean", "low", "high")),
            ]
        )
        for kind, part in one["by_kind"].items():
            bounds = [part["difference"][key] for key in ("mean", "low", "high")]
            body.append([name, kind, part["rows"], part["a"], part["b"], *bounds])
    return csv_text(names, body)


def markdown_tables(summary: Mapping[str, Any]) -> str:
    """The overview, then a table for every way a benchmark's accuracy is split."""
    parts = ["# Evaluation", "", *_overview(summary)]
    found = list(lines(summary))
    for benchmark in summary["benchmarks"]:
        own = [line for line in found if line.benchmark == benchmark and line.group != "figure"]
        for group in dict.fromkeys(line.group for line in own):
            parts += ["", f"## {_cell(benchmark)} by {_cell(group)}", ""]
            body = [[line.name, line.text, str(line.rows)] for line in own if line.group == group]
            parts += markdown_table([group, "% (95 % interval)", "rows"], body)
    return "\n".join(parts) + "\n"


def markdown_comparison(summary: Mapping[str, Any]) -> str:
    """Every comparison and its categories."""
    head = ["comparison", "rows", "A", "B", "A - B (95 % interval)", "better", "worse"]
    body = []
    for name, one in summary["comparisons"].items():
        body.append([
            name, str(one["rows"]), _percent(one["a"]["mean"]), _percent(one["b"]["mean"]),
            figure_text(**one["difference"]), str(one["better"]), str(one["worse"]),
        ])  # fmt: skip
        for kind, part in one["by_kind"].items():
            body.append([
                f"- {kind}", str(part["rows"]), _percent(part["a"]), _percent(part["b"]),
                figure_text(**part["difference"]), "", "",
            ])  # fmt: skip
    top = ["# Comparison", "", f"A: `{summary['a']}`", "", f"B: `{summary['b']}`", ""]
    return "\n".join([*top, *markdown_table(head, body)]) + "\n"


def _overview(summary: Mapping[str, Any]) -> list[str]:
    head = ["benchmark", "view", "figure", "% (95 % interval)", *(name.replace("_", " ") for name in COUNTS)]
    body = []
    for line in lines(summary):
        if line.group != "figure":
            continue
        figure = summary["benchmarks"][line.benchmark]["views"][line.view]["figures"][line.name]
        found = figure_counts(figure)
        body.append([line.benchmark, line.view, line.name, line.text, *(str(found[name]) for name in COUNTS)])
    return markdown_table(head, body)


def markdown_table(head: list[str], body: list[list[str]]) -> list[str]:
    """The lines of a table, all columns but the first set to the right; cells may hold any text."""
    rule = ["---"] + ["---:" if place else "---" for place in range(1, len(head))]
    return [_row(head), _row(rule), *map(_row, body)]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def csv_text(names: list[str], body: list[list[Any]]) -> str:
    """A whole CSV file; None is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(body)
    return buffer.getvalue()
