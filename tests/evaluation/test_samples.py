"""pass@k and the majority vote, counted by hand."""

from __future__ import annotations

import pytest

from ktr.evaluation.samples import majority_vote, pass_at_k, sampled_figures


def samples(record, row_id, *answers, right="A"):
    return [
        record(row_id, float(answer == right), sample=place, parsed=answer, status="ok" if answer else "no_answer")
        for place, answer in enumerate(answers)
    ]


def test_pass_at_k_is_unbiased(record):
    records = samples(record, "a", "A", "B", "B", "B")
    assert pass_at_k(records, 1)["a"] == pytest.approx(0.25)
    assert pass_at_k(records, 2)["a"] == pytest.approx(0.5)  # 3 of the 6 pairs hold the right one
    assert pass_at_k(records, 4)["a"] == 1.0
    assert pass_at_k(samples(record, "b", "B", "C"), 2)["b"] == 0.0


def test_the_vote_needs_no_right_answer_to_win(record):
    assert majority_vote(samples(record, "a", "B", "A", "A"))["a"] == 1.0
    assert majority_vote(samples(record, "a", "A", "B", "B"))["a"] == 0.0
    assert majority_vote(samples(record, "a", "A", "B"))["a"] == 1.0, "a tie goes to the earlier answer"
    assert majority_vote(samples(record, "a", None, None, "A"))["a"] == 1.0, "no answer is no vote"
    assert majority_vote(samples(record, "a", None, None))["a"] == 0.0


def test_order_on_disk_does_not_matter(record):
    records = samples(record, "a", "A", "B")
    assert majority_vote(records[::-1]) == majority_vote(records)


def test_figures_of_several_rows(record):
    records = samples(record, "a", "A", "A", "B") + samples(record, "b", "B", "B", "B")
    found = sampled_figures(records, resamples=100)
    assert list(found) == ["pass@1", "pass@2", "pass@3", "majority vote"]
    assert found["pass@1"].mean == pytest.approx(1 / 3)
    assert found["majority vote"].mean == 0.5
    assert sampled_figures(samples(record, "a", "A"), resamples=100) == {}


def test_more_samples_than_there_are(record):
    with pytest.raises(ValueError, match="row 'a' has 2"):
        pass_at_k(samples(record, "a", "A", "B"), 3)
