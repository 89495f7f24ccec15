"""Runs compared row by row, and saved replies scored again."""

from __future__ import annotations

import json

import pytest

from ktr.config.compose import SCHEMAS, compose
from ktr.config.overrides import quote
from ktr.config.schema_eval import EvalConfig
from ktr.config.validate import check_files, validate
from ktr.evaluation.entry import run
from ktr.evaluation.records import RecordWriter, read_records
from ktr.evaluation.saved_runs import compare_runs, load_run, saved_settings, settings_for


def evaluate(*overrides):
    config = validate(compose("evaluate", list(overrides)), SCHEMAS["evaluate"])
    check_files(config)
    return config


@pytest.fixture
def replayed(tmp_path):
    """A run of given replies: 8 rows, whose gold is A; the replies say A to the first `right`."""
    rows = tmp_path / "rows.jsonl"
    asked = {"question": "?", "options": ["red", "blue"], "answer": "A"}
    rows.write_text("".join(json.dumps({"id": i, "category": f"k{i % 2}", **asked}) + "\n" for i in range(8)))

    def make(name, right):
        replies = tmp_path / f"{name}.jsonl"
        replies.write_text("".join(json.dumps({"id": i, "reply": "A" if i < right else "B"}) + "\n" for i in range(8)))
        config = evaluate(
            f"eval.rows={quote(str(rows))}", "eval.engine=replay", f"eval.replies={quote(str(replies))}",
            "eval.bootstrap=200",
        )  # fmt: skip
        return run(config, tmp_path / name).parent

    return make


def test_two_runs_are_compared_on_the_same_rows(replayed, tmp_path):
    a, b = replayed("a", 6), replayed("b", 3)
    config = evaluate(f"compare=[{quote(str(a))},{quote(str(b))}]", "eval.bootstrap=200")
    summary = json.loads(run(config, tmp_path / "compared").read_text())
    (one,) = summary["comparisons"].values()
    assert one["difference"]["mean"] == pytest.approx(3 / 8)
    assert (one["better"], one["worse"], one["same"], one["rows"]) == (3, 0, 5, 8)
    assert one["by_kind"]["k0"]["difference"]["mean"] == pytest.approx(1 / 4)
    assert one["by_kind"]["k1"]["difference"]["mean"] == pytest.approx(2 / 4)
    markdown = (tmp_path / "compared" / "results.md").read_text()
    assert "37.5" in markdown and "| - k0 |" in markdown
    assert (tmp_path / "compared" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_runs_of_other_rows_are_not_compared(record):
    with pytest.raises(ValueError, match="same rows"):
        compare_runs({"x": {"full": [record("a")]}}, {"x": {"full": [record("b")]}})
    with pytest.raises(ValueError, match="in common"):
        compare_runs({"x": {"full": [record("a")]}}, {"x": {"shuffled": [record("a", view="shuffled")]}})


def test_a_folder_without_records(tmp_path):
    with pytest.raises(ValueError, match="holds no records"):
        load_run(tmp_path)


def test_saved_replies_are_scored_again_without_a_model(replayed, tmp_path):
    old = replayed("a", 6)
    file = old / "records" / "held_out_full.jsonl"
    before = file.read_bytes()
    summary = json.loads(run(evaluate(f"rescore={quote(str(old))}"), tmp_path / "again").read_text())
    assert summary["changed"] == {"held_out": 0}
    assert summary["accuracy"]["mean"] == 0.75
    strict = evaluate(f"rescore={quote(str(old))}", "eval.require_tags=true")
    summary = json.loads(run(strict, tmp_path / "strict").read_text())
    assert summary["changed"] == {"held_out": 6}
    assert (summary["accuracy"]["mean"], summary["samples"]["no_answer"]) == (0.0, 8)
    assert file.read_bytes() == before
    assert len(read_records(tmp_path / "strict" / "records" / "held_out_full.jsonl").records) == 8


def test_settings_of_a_run_are_those_it_was_made_with(replayed, tmp_path):
    saved = saved_settings(replayed("a", 6))
    assert saved.engine == "replay"
    assert settings_for("held_out", saved, EvalConfig(policy="video_r1")).policy == "video_r1"
    assert settings_for("held_out", saved, EvalConfig()).replies == saved.replies


def test_names_may_hold_underscores(record, tmp_path):
    for view in ("full", "no_video", "one_frame"):
        with RecordWriter(tmp_path / "records" / f"video_holmes_{view}.jsonl") as file:
            file.write([record("a", view=view)])
    assert {name: set(views) for name, views in load_run(tmp_path).items()} == {
        "video_holmes": {"full", "no_video", "one_frame"}
    }
