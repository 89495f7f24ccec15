"""Accuracy counts every row, intervals behave like intervals, comparisons pair the same rows."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ktr.evaluation.metrics import (
    accuracy,
    against_ceiling,
    bootstrap_interval,
    by_category,
    counts,
    paired_difference,
    row_scores,
)


def test_accuracy_is_over_all_rows(record):
    records = [
        record("right"),
        record("wrong", 0.0),
        record("unreadable", 0.0, status="media_error"),
        record("cut off", 0.0, status="truncated", truncated=True),
        record("silent", 0.0, status="no_answer"),
        record("open", None, status="abstained"),
    ]
    assert accuracy(records).mean == pytest.approx(1 / 6)
    found = counts(records)
    assert (found.rows, found.samples, found.answered) == (6, 6, 3)
    assert (found.media_error, found.truncated, found.no_answer, found.unjudged) == (1, 1, 1, 1)
    assert found.answered_share == 0.5


def test_samples_of_a_row_are_averaged_first(record):
    records = [record("a", 1.0), record("a", 0.0, sample=1), record("b", 1.0)]
    assert row_scores(records) == {"a": 0.5, "b": 1.0}
    assert accuracy(records).mean == 0.75


def test_interval_agrees_with_the_normal_approximation():
    values = np.array([1.0] * 600 + [0.0] * 400)
    interval = bootstrap_interval(values)
    error = 1.96 * np.sqrt(0.6 * 0.4 / 1000)
    assert interval.mean == 0.6
    assert interval.low == pytest.approx(0.6 - error, abs=0.004)
    assert interval.high == pytest.approx(0.6 + error, abs=0.004)


def test_interval_is_seeded_and_independent_of_block_size(monkeypatch):
    values = list(np.random.default_rng(1).random(50))
    whole = bootstrap_interval(values, seed=3)
    assert whole == bootstrap_interval(values, seed=3)
    assert whole != bootstrap_interval(values, seed=4)
    monkeypatch.setattr("ktr.evaluation.metrics.DRAWS_AT_ONCE", 50 * 64)
    assert bootstrap_interval(values, seed=3) == whole


def test_two_thousand_rows_are_fast():
    values = np.random.default_rng(0).integers(2, size=2000).astype(float)
    start = time.process_time()
    bootstrap_interval(values, resamples=2000)
    assert time.process_time() - start < 1.0


def test_empty_sets_and_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="empty"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="level"):
        bootstrap_interval([1.0], level=1.0)


def test_paired_difference_is_tighter_than_two_intervals(record):
    rng = np.random.default_rng(0)
    before = [record(str(i), float(rng.random() < 0.5)) for i in range(400)]
    after = [record(r.id, max(r.accuracy, float(rng.random() < 0.1))) for r in before]
    gain = paired_difference(list(reversed(after)), before)
    assert gain.mean == pytest.approx(accuracy(after).mean - accuracy(before).mean)
    assert 0 < gain.low < gain.mean < gain.high
    unpaired = accuracy(after), accuracy(before)
    assert gain.high - gain.low < 0.6 * sum(interval.high - interval.low for interval in unpaired) / 2


def test_paired_difference_refuses_other_rows(record):
    with pytest.raises(ValueError, match=r"2 are on one side only.*'b'"):
        paired_difference([record("a"), record("b")], [record("a"), record("c")])


def test_views_are_not_mixed_nor_samples_doubled(record):
    with pytest.raises(ValueError, match="several views"):
        accuracy([record("a"), record("b", view="shuffled")])
    with pytest.raises(ValueError, match="twice"):
        accuracy([record("a"), record("a")])


def test_categories_fall_back_to_the_problem_type(record):
    table = by_category([record("a"), record("b", 0.0), record("c", category="", problem_type="numerical")])
    assert list(table) == ["colour", "numerical"]
    assert table["colour"].accuracy.mean == 0.5
    assert table["colour"].counts.rows == 2


def test_ceiling_is_passed_only_by_the_whole_interval(record):
    records = [record(f"a{i}", float(i < 90), category="order") for i in range(100)]
    records += [record(f"b{i}", float(i < 52), category="first") for i in range(100)]
    checks = against_ceiling(records, {"order": 0.5, "first": 0.5, "absent": 0.5})
    assert set(checks) == {"order", "first"}
    assert checks["order"].above
    assert not checks["first"].above
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        against_ceiling(records, {"order": 50})
