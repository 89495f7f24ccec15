from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ktr.attribution.auroc import auroc


def area(scores, labels):
    return auroc(torch.tensor(scores).float(), torch.tensor(labels).bool())


def test_golden():
    assert area([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75
    assert area([1, 2, 3], [0, 0, 1]) == 1.0
    assert area([3, 2, 1], [0, 0, 1]) == 0.0


def test_ties_count_one_half():
    assert area([1, 1, 1, 1], [0, 1, 0, 1]) == 0.5
    assert area([1, 2, 2, 3], [0, 0, 1, 1]) == (4 - 0.5) / 4


def test_one_class_alone_has_no_curve():
    assert area([1, 2], [1, 1]) is None
    assert area([1, 2], [0, 0]) is None
    assert area([], []) is None


def test_a_score_without_rank_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        area([1, float("nan")], [0, 1])


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=40))
def test_equals_counting_pairs(pairs):
    positive = [score for score, label in pairs if label]
    negative = [score for score, label in pairs if not label]
    got = area([score for score, _ in pairs], [label for _, label in pairs])
    if not positive or not negative:
        assert got is None
        return
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    assert got == pytest.approx(wins / (len(positive) * len(negative)), abs=1e-12)
