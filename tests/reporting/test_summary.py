"""The summary says what ran, with intervals, and null where nothing ran."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from ktr.evaluation.metrics import accuracy, by_category, paired_difference
from ktr.reporting.summary import build_summary, interval_of, summary_table, write_summary


@pytest.fixture
def summary(full, shuffled, order_blind):
    return build_summary(
        full,
        shuffled=shuffled,
        attribution={"visual_auroc": 0.91, "temporal_auroc": 0.8},
        order_blind=order_blind,
        seconds=12.5,
        resamples=200,
    )


def test_numbers_are_those_of_the_metrics(summary, full, shuffled):
    assert summary["accuracy"] == {stage: accuracy(records).mean for stage, records in full.items()}
    assert summary["accuracy_shuffled"]["rl"] == accuracy(shuffled["rl"]).mean
    assert summary["rl_minus_sft"] == paired_difference(full["rl"], full["sft"], resamples=200).to_dict()
    kind = by_category(full["sft"], resamples=200)["count"]
    assert summary["by_kind"]["count"]["sft"] == kind.accuracy.mean
    assert interval_of(summary, "by_kind", "sft", kind="count") == kind.accuracy
    assert summary["attribution"] == {"visual_auroc": 0.91, "temporal_auroc": 0.8}
    assert summary["seconds"] == 12.5
    assert summary["rows_by_kind"]["shape"] == 60
    assert summary["samples"]["rl"]["answered_share"] == 1.0


def test_shuffled_frames_are_held_against_their_ceilings(summary):
    check = summary["order_blind"]["shuffled"]["rl"]["which first"]
    assert check["ceiling"] == 0.5
    assert check["accuracy"]["mean"] == summary["by_kind_shuffled"]["which first"]["rl"]
    assert check["above"] == (check["accuracy"]["low"] > 0.5)
    assert set(summary["order_blind"]["shuffled"]["rl"]) == {"direction", "which first", "what changed"}


def test_stages_that_did_not_run_are_null(full):
    summary = build_summary({"sft": full["sft"]}, resamples=50)
    assert summary["accuracy"] == {"base": None, "sft": pytest.approx(accuracy(full["sft"]).mean), "rl": None}
    assert summary["accuracy_shuffled"] == {"base": None, "sft": None, "rl": None}
    assert summary["rl_minus_sft"] is None
    assert summary["attribution"] == {"visual_auroc": None, "temporal_auroc": None}
    assert summary["by_kind"]["colour"]["rl"] is None
    assert summary["seconds"] is None
    empty = build_summary({})
    assert empty["by_kind"] == {} and empty["accuracy"]["rl"] is None
    with pytest.raises(ValueError, match=r"\['warmup'\]"):
        build_summary({"warmup": full["sft"]})


def test_written_summary_is_whole_and_replaces(summary, tmp_path):
    path = write_summary(tmp_path / "run" / "summary.json", summary)
    assert json.loads(path.read_text()) == summary
    write_summary(path, {**summary, "seconds": 1.0})
    assert json.loads(path.read_text())["seconds"] == 1.0
    with pytest.raises(ValueError, match="JSON compliant"):
        write_summary(path, {**summary, "seconds": float("nan")})
    assert json.loads(path.read_text())["seconds"] == 1.0
    assert [file.name for file in path.parent.iterdir()] == ["summary.json"]


def shown(table) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_console_table(summary, full):
    text = shown(summary_table(summary))
    assert "base model" in text and "after RL" in text and "frames shuffled" in text and "which first" in text
    assert f"{100 * summary['accuracy']['rl']:.1f} (" in text
    assert "RL minus SFT: +" in text and "visual_auroc 0.91" in text
    alone = shown(summary_table(build_summary({"sft": full["sft"]}, resamples=50)))
    assert "after SFT" in alone and "base model" not in alone and "shuffled" not in alone
    shown(summary_table(build_summary({})))
