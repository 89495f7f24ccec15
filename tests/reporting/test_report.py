"""The report holds every part that ran, in one file that loads nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from ktr.evaluation.metrics import Interval
from ktr.reporting.report import KindRow, curve_charts, kind_rows, write_report
from ktr.reporting.summary import build_summary


class Outline(HTMLParser):
    """Checks that tags nest, and collects headings and tags."""

    void = {"meta", "img", "input", "br"}

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.feed(html)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.void:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] in ("h1", "h2"):
            self.headings.append(data)


@pytest.fixture
def summary(full, shuffled, order_blind):
    auroc = {"visual_auroc": 0.91, "temporal_auroc": 0.8}
    return build_summary(full, shuffled=shuffled, attribution=auroc, order_blind=order_blind, resamples=100)


def test_whole_report(tmp_path, summary, metric_rows, token_page):
    path = write_report(
        tmp_path / "report.html",
        title="Toy <world>",
        summary=summary,
        curves=metric_rows,
        examples=[token_page()],
        config_text="question: </pre><script>x</script>",
        versions={"packages": {"torch": "2.14.1"}},
    )
    html = path.read_text(encoding="utf-8")
    outline = Outline(html)
    assert outline.headings == [
        "Toy <world>",
        "Accuracy",
        "Accuracy per question kind",
        "Accuracy with the frames shuffled",
        "Attribution against ground truth",
        "Supervised fine-tuning",
        "Reinforcement learning",
        "Completions",
        "Configuration and versions",
    ]
    assert "script" not in outline.tags and "link" not in outline.tags
    assert not re.search(r"(?:src|href|xlink:href)=\"(?!data:)", html)
    assert f"<b>{100 * summary['accuracy']['rl']:.1f}</b>" in html
    assert "packages.torch" in html
    assert html.count('<figure class="chart">') == 3 + 8


def test_sentence_is_no_stronger_than_the_interval(tmp_path, summary):
    for bounds, word in [((0.01, 0.05), "raised"), ((-0.05, -0.01), "lowered"), ((-0.01, 0.05), "did not clearly")]:
        summary["rl_minus_sft"] = {"mean": sum(bounds) / 2, "low": bounds[0], "high": bounds[1]}
        html = write_report(tmp_path / "r.html", title="t", summary=summary).read_text(encoding="utf-8")
        assert f"Reinforcement learning {word}" in html


def test_parts_that_did_not_run_are_left_out(tmp_path, full):
    nothing = write_report(tmp_path / "a.html", title="t", summary=build_summary({})).read_text(encoding="utf-8")
    assert Outline(nothing).headings == ["t"]
    assert "No model was evaluated" in nothing
    alone = build_summary({"sft": full["sft"]}, resamples=50)
    html = write_report(tmp_path / "b.html", title="t", summary=alone).read_text(encoding="utf-8")
    assert Outline(html).headings == ["t", "Accuracy", "Accuracy per question kind"]
    assert "Held-out accuracy: after SFT" in html


def test_curves_pick_their_stage_and_survive_gaps():
    rows = [
        {"stage": "rl", "step": 2, "reward": 1.0, "kl": None, "text": "x"},
        {"stage": "rl", "step": 1, "reward": 0.5},
        {"stage": "sft", "step": 1, "loss": 3.0},
        {"stage": "eval", "accuracy": 0.5},
    ]
    charts = curve_charts(rows, "rl")
    assert len(charts) == 1
    assert charts[0].index("step 1: 0.5") < charts[0].index("step 2: 1")
    assert len(curve_charts(rows, "sft")) == 1
    assert curve_charts(rows, "eval") == []


def test_reward_parts_match_whatever_a_reward_is_called():
    row = {"stage": "rl", "step": 1, "rewards/accuracy_reward/mean": 0.5, "rewards/format/mean": 1.0}
    chart = "".join(curve_charts([row], "rl"))
    assert "accuracy, step 1: 0.5" in chart and "format, step 1: 1" in chart


def test_kind_table_can_be_given(tmp_path, summary):
    row = KindRow("<kind>", 12, {"rl": Interval(0.5, 0.4, 0.6)}, order_blind=0.25)
    html = write_report(tmp_path / "r.html", title="t", summary=summary, kind_table=[row]).read_text(encoding="utf-8")
    assert "&lt;kind&gt;" in html and "best without frame order 25.0%" in html
    assert [found.kind for found in kind_rows(summary)][:2] == ["colour", "count"]
