"""The published figures on records small enough to count by hand."""

from __future__ import annotations

import json

import pytest

from ktr.evaluation.official import official_figures


def figures(metric, records, **options):
    return {figure.name: figure for figure in official_figures(metric, records, resamples=200, **options)}


def test_accuracy_counts_every_row(record):
    found = figures("accuracy", [record("a", 1.0), record("b", 0.0, status="media_error"), record("c", None)])
    assert found["accuracy"].interval.mean == pytest.approx(1 / 3)
    assert found["accuracy"].rows == 3


def test_mean_of_tasks_weighs_tasks_alike(record):
    records = [record("a", 1.0, category="x"), *(record(name, 0.0, category="y") for name in "bcd")]
    found = figures("category_mean", records)
    assert (found["mean of tasks"].interval.mean, found["accuracy"].interval.mean) == (0.5, 0.25)


def test_the_facet_task_goes_before_the_category(record):
    scores = (("a", 1.0, "x"), ("b", 0.0, "y"), ("c", 0.0, "y"))
    records = [record(name, score, facets={"task": task}) for name, score, task in scores]
    assert figures("category_mean", records)["mean of tasks"].interval.mean == 0.5


def test_vsi_bench_merges_the_grades_of_direction(record):
    directions = [
        record(name, score, category=f"object_rel_direction_{name}", problem_type="multiple choice")
        for name, score in (("easy", 1.0), ("medium", 1.0), ("hard", 0.0))
    ]
    counting = [record("n", 0.4, category="object_counting", problem_type="regression")]
    found = figures("vsi_bench", directions + counting)
    assert found["mean of tasks"].interval.mean == pytest.approx((2 / 3 + 0.4) / 2)
    assert found["multiple choice accuracy"].interval.mean == pytest.approx(2 / 3)
    assert found["mean relative accuracy"].interval.mean == pytest.approx(0.4)


def test_ovo_bench_is_the_mean_of_three_modes(record):
    def row(name, score, task, mode):
        return record(name, score, facets={"task": task, "category": mode})

    records = [
        row("a", 1.0, "EPM", "backward"), row("b", 0.0, "ACR", "realtime"), row("c", 1.0, "OCR", "realtime"),
        row("d", 1.0, "OCR", "realtime"), row("e", 0.0, "REC", "forward"), row("f", 1.0, "SSR", "forward"),
    ]  # fmt: skip
    found = figures("ovo_bench", records)
    assert found["realtime"].interval.mean == 0.5
    assert found["mean of modes"].interval.mean == pytest.approx((1.0 + 0.5 + 0.5) / 3)
    assert {name: figure.rows for name, figure in found.items()} == {
        "mean of modes": 6, "backward": 1, "forward": 2, "realtime": 3,
    }  # fmt: skip


def test_a_figure_counts_its_own_samples(record):
    def row(name, mode, **more):
        return record(name, 0.0, facets={"task": mode, "category": mode}, **more)

    records = [
        row("a", "backward"), row("b", "forward", status="no_reply"), row("c", "forward"),
        row("c", "forward", sample=1, status="media_error"),
    ]  # fmt: skip
    found = figures("ovo_bench", records)
    assert {name: (of.counts.rows, of.counts.samples, of.counts.answered) for name, of in found.items()} == {
        "mean of modes": (3, 4, 2), "backward": (1, 1, 1), "forward": (2, 3, 1),
    }  # fmt: skip
    assert (found["forward"].counts.no_reply, found["backward"].counts.no_reply) == (1, 0)


def test_recall_at_overlaps(record):
    found = figures("temporal_grounding", [record(str(i), iou) for i, iou in enumerate((0.3, 0.49, 0.5, 0.71))])
    assert found["mIoU"].interval.mean == pytest.approx(0.5)
    assert [found[f"R@{level}"].interval.mean for level in (0.3, 0.5, 0.7)] == [1.0, 0.5, 0.25]


def test_volume_overlap_counts_the_seconds_of_either(record):
    box = [0, 0, 10, 10]
    gold = json.dumps({"time": [1.0, 3.0], "boxes": {"1": box, "2": box}})
    reply = json.dumps({"time": [2.0, 4.0], "boxes": {"2": box, "3": box, "4": [0, 0, 5, 10]}})
    found = figures("spatio_temporal_grounding", [record("a", 0.3, gold=gold, reply=f"<answer>{reply}</answer>")])
    assert found["m_tIoU"].interval.mean == pytest.approx(1 / 3)
    assert found["m_vIoU"].interval.mean == pytest.approx(1 / 4)  # second 2 alone is in both, of 1, 2, 3, 4
    assert found["vIoU@0.3"].interval.mean == 0.0
    nothing = figures("spatio_temporal_grounding", [record("a", 0.0, gold=gold, reply="no idea", status="unparsable")])
    assert nothing["m_vIoU"].interval.mean == 0.0


def test_counting_errors_are_over_answered_rows(record):
    records = [
        record("a", 1.0, gold="4", parsed="4"), record("b", 0.0, gold="4", parsed="5"),
        record("c", 0.0, gold="4", parsed="8"), record("d", 0.0, gold="4", parsed=None, status="no_answer"),
    ]  # fmt: skip
    found = figures("counting", records)
    assert found["accuracy"].interval.mean == 0.25
    assert found["off by at most one"].interval.mean == 0.5
    assert found["mean absolute error"].interval.mean == pytest.approx(5 / 3)
    assert found["root mean squared error"].interval.mean == pytest.approx((17 / 3) ** 0.5)
    assert (found["mean absolute error"].rows, found["mean absolute error"].share) == (3, False)


def test_intervals_hold_the_mean_and_narrow_with_rows(record):
    def width(count):
        interval = figures("accuracy", [record(str(i), float(i % 2)) for i in range(count)])["accuracy"].interval
        assert interval.low <= interval.mean <= interval.high
        return interval.high - interval.low

    assert width(400) < width(20) / 3


def test_a_seed_gives_one_interval(record):
    records = [record(str(i), float(i % 3 == 0)) for i in range(30)]
    assert figures("accuracy", records, seed=1) == figures("accuracy", records, seed=1)
    assert figures("accuracy", records, seed=1) != figures("accuracy", records, seed=2)


def test_wrong_calls(record):
    with pytest.raises(ValueError, match="unknown metric 'acc'"):
        official_figures("acc", [record("a")])
    with pytest.raises(ValueError, match="no rows"):
        official_figures("accuracy", [])


def test_a_question_of_pairs_is_right_when_every_pairing_is(record):
    """VideoMathQA: question q wins 2 of 2 pairings, r 1 of 2; one row is ordinary multiple choice."""

    def pairing(question, number, score, sample=0):
        facets = {"question_id": question, "pairing": str(number)}
        return record(f"{question}-{number}", score, sample=sample, facets=facets)

    pairs = [pairing("q", 1, 1.0), pairing("q", 2, 1.0), pairing("r", 3, 1.0), pairing("r", 4, 0.0)]
    found = figures("multi_binary", [*pairs, record("m", 0.0)])
    assert (found["multi-binary accuracy"].interval.mean, found["multi-binary accuracy"].rows) == (0.5, 2)
    assert found["multi-binary accuracy"].counts.samples == 4
    assert found["multiple choice accuracy"].interval.mean == 0.0
    assert found["accuracy"].interval.mean == pytest.approx(3 / 5)
    assert list(figures("multi_binary", [record("m", 1.0)]))[0] == "multiple choice accuracy"
    sampled = [pairing("q", 1, 1.0), pairing("q", 1, 0.0, 1), pairing("q", 2, 0.0), pairing("q", 2, 1.0, 1)]
    assert figures("multi_binary", sampled)["multi-binary accuracy"].interval.mean == 0.0
