"""Tables and pages of an evaluation: every number is there, text of models is escaped, failures have columns."""

from __future__ import annotations

import csv
import io

import pytest

from ktr.evaluation.benchmark_summary import benchmark_summary
from ktr.evaluation.records import Record
from ktr.evaluation.saved_runs import compare_runs
from ktr.reporting.benchmark_report import write_benchmarks, write_comparison
from ktr.reporting.benchmark_tables import csv_table, markdown_tables


def make(row_id: str, accuracy: float, *, view: str = "full", **more) -> Record:
    values = {
        "id": row_id, "view": view, "sample": 0, "category": "a|b <i>", "problem_type": "free-form", "gold": "red",
        "reply": "red", "parsed": "red", "status": "ok", "accuracy": accuracy, "format": 1.0, "num_tokens": 3,
        "truncated": False, **more,
    }  # fmt: skip
    return Record(**values)


@pytest.fixture
def summary():
    full = [
        make("1", 1.0, facets={"length": "short"}), make("2", 1.0, category="c", facets={"length": "long"}),
        make("3", 0.0, status="media_error", facets={"length": "long"}),
        make("4", 0.0, status="truncated", truncated=True),
    ]  # fmt: skip
    blind = [make(row_id, 0.0, view="no_video") for row_id in "1234"]
    result = benchmark_summary({"full": full, "no_video": blind}, resamples=100, settings={"prompt": "<think>"})
    return {"model": "m", "benchmarks": {"mine": result}}


def test_the_table_holds_every_number(summary):
    rows = list(csv.DictReader(io.StringIO(csv_table(summary))))
    found = {(row["view"], row["group"], row["name"]): float(row["mean"]) for row in rows}
    assert found["full", "figure", "accuracy"] == 0.5
    assert found["no_video", "figure", "accuracy"] == 0.0
    assert found["full", "length", "long"] == 0.5
    assert found["full", "category", "c"] == 1.0
    assert found["full - no_video", "difference", "vision"] == 0.5


def test_markdown_keeps_its_columns(summary):
    text = markdown_tables(summary)
    assert "a\\|b <i>" in text
    overview = [line for line in text.splitlines() if line.startswith("| mine | full")]
    assert "50.0" in overview[0]
    head = next(line for line in text.splitlines() if line.startswith("| benchmark"))
    cells = dict(zip(head.split(" | "), overview[0].split(" | "), strict=True))
    assert (cells["media error"], cells["truncated"], cells["answered"]) == ("1", "1", "2")


def test_each_figure_has_counts_of_its_own(tmp_path):
    modes = {"1": "backward", "2": "forward", "3": "forward"}
    records = [make(row_id, 1.0, facets={"category": mode, "task": mode}) for row_id, mode in modes.items()]
    records[2] = make("3", 0.0, facets=records[2].facets, status="no_reply")
    summary = {"benchmarks": {"ovo": benchmark_summary({"full": records}, metric="ovo_bench", resamples=100)}}
    table = [line.split(" | ") for line in markdown_tables(summary).splitlines()]
    head, *rows = [cells for cells in table if cells[0] in ("| benchmark", "| ovo")]
    found = {row[2]: dict(zip(head, row, strict=True)) for row in rows}
    assert {name: (row["rows"], row["answered"], row["no reply"]) for name, row in found.items()} == {
        "mean of modes": ("3", "2", "1"), "backward": ("1", "1", "0"), "forward": ("2", "1", "1"),
    }  # fmt: skip
    lines = csv.DictReader(io.StringIO(csv_table(summary)))
    answered = {row["name"]: (row["rows"], row["answered"]) for row in lines if row["group"] == "figure"}
    assert answered == {"mean of modes": ("3", "2"), "backward": ("1", "1"), "forward": ("2", "1")}


def test_the_page_escapes_and_explains(summary, tmp_path):
    page = write_benchmarks(tmp_path, summary, title="<run>").read_text()
    assert "<script" not in page and "&lt;run&gt;" in page and "a|b &lt;i&gt;" in page
    assert "the question alone" in page and "<svg" in page
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "results.md", "results.csv"}


def test_a_comparison_says_whether_it_is_clear(tmp_path):
    a = {"x": {"full": [make(str(i), 1.0) for i in range(20)]}}
    b = {"x": {"full": [make(str(i), float(i % 2)) for i in range(20)]}}
    compared = {"a": "<a>", "b": "b", "comparisons": compare_runs(a, b, resamples=200)}
    page = write_comparison(tmp_path, compared).read_text()
    assert "The interval leaves out 0." in page and "+50.0" in page and "&lt;a&gt;" in page
    same = {"a": "a", "b": "b", "comparisons": compare_runs(a, a, resamples=200)}
    assert "no clear difference" in write_comparison(tmp_path, same).read_text()
