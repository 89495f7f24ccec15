"""Figures of a run by name, from what runs write."""

from __future__ import annotations

import json

import pytest

from ktr.reporting.run_figures import Figure, headlines, returned_figure, run_figures

TRAINED = {
    "accuracy": {"base": 0.1, "sft": 0.5, "rl": None},
    "accuracy_shuffled": {"base": None, "sft": 0.25, "rl": None},
    "rl_minus_sft": None,
    "attribution": {"visual_auroc": 0.75, "temporal_auroc": None},
    "by_kind": {"order": {"base": 0.0, "sft": 1.0, "rl": None}},
    "by_kind_shuffled": {},
    "seconds": 12.5,
}


def figure(name: str, mean: float, share: bool = True) -> dict:
    return {"name": name, "interval": {"mean": mean, "low": mean, "high": mean}, "rows": 4, "share": share}


EVALUATED = {
    "model": "somewhere",
    "seconds": 3,
    "benchmarks": {
        "charades": {
            "view": "full",
            "headline": "mIoU",
            "views": {
                "full": {"figures": {"mIoU": figure("mIoU", 0.4), "error": figure("error", 2.5, share=False)}},
                "shuffled": {"figures": {"mIoU": figure("mIoU", 0.2)}},
            },
            "by_kind": {"long": {"accuracy": {"mean": 0.3, "low": 0.1, "high": 0.5}}},
        }
    },
}


def test_figures_of_training_are_those_of_its_summary_and_of_the_last_tenth_of_its_steps(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(TRAINED))
    steps = [{"stage": "sft", "step": step, "loss": float(step), "epoch": 0.1} for step in range(1, 21)]
    steps += [{"stage": "sft", "step": 20, "train_runtime": 9.0}, {"stage": "eval", "accuracy/sft": 0.5}]
    text = "".join(json.dumps(row) + "\n" for row in steps) + '{"stage": "sft", "step": 21, "lo'
    (tmp_path / "metrics.jsonl").write_text(text)
    found = run_figures(tmp_path)
    assert {name: figure.value for name, figure in found.items()} == {
        "accuracy.base": 0.1, "accuracy.sft": 0.5, "accuracy_shuffled.sft": 0.25, "accuracy": 0.5,
        "attribution.visual_auroc": 0.75, "by_kind.order.base": 0.0, "by_kind.order.sft": 1.0, "seconds": 12.5,
        "sft/loss": 19.5, "sft/train_runtime": 9.0,
    }  # fmt: skip
    assert headlines(found) == ["accuracy.sft", "accuracy_shuffled.sft"]
    assert found["accuracy"].share and not found["sft/loss"].share
    assert returned_figure(tmp_path, None) == 0.5 and returned_figure(tmp_path, "sft/loss") == 19.5


def test_figures_of_an_evaluation_are_by_benchmark_and_view(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(EVALUATED))
    found = run_figures(tmp_path)
    assert found == {
        "charades.mIoU": Figure(0.4, share=True, headline=True),
        "charades.error": Figure(2.5),
        "charades.shuffled.mIoU": Figure(0.2, share=True),
        "charades.by_kind.long": Figure(0.3, share=True),
        "accuracy": Figure(0.4, share=True),
        "seconds": Figure(3.0),
    }
    assert headlines(found) == ["charades.mIoU"] and returned_figure(tmp_path, None) == 0.4


def test_a_suite_has_no_accuracy_of_its_own(tmp_path):
    suite = EVALUATED | {"benchmarks": {name: EVALUATED["benchmarks"]["charades"] for name in ("one", "two")}}
    (tmp_path / "summary.json").write_text(json.dumps(suite))
    assert headlines(run_figures(tmp_path)) == ["one.mIoU", "two.mIoU"]
    assert returned_figure(tmp_path, None) is None


def test_a_run_without_evaluation_is_judged_by_its_steps(tmp_path):
    rows = [{"stage": "rl", "step": 1, "reward": 0.5, "loss": None}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert headlines(run_figures(tmp_path)) == ["rl/reward"]


def test_a_figure_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(TRAINED))
    with pytest.raises(ValueError, match=r"metric=accuracy\.rl: .* has accuracy\.base, accuracy\.sft"):
        returned_figure(tmp_path, "accuracy.rl")
    assert run_figures(tmp_path / "nothing") == {}
