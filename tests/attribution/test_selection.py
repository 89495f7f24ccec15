from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ktr.attribution.selection import combine_selections, num_selected, select, select_quantile, select_top


@pytest.mark.parametrize(
    ("ratio", "num_valid", "expected"),
    [(0.1, 10, 1), (0.2, 15, 3), (0.2, 16, 4), (0.2, 1, 1), (0.3, 50, 15), (0.07, 100, 7), (1.0, 7, 7), (0.2, 0, 0)],
)
def test_num_selected_golden(ratio, num_valid, expected):
    assert num_selected(ratio, num_valid) == expected


def test_float_products_would_keep_one_too_many():
    assert math.ceil(float(torch.tensor(0.3) * 50)) == 16
    assert math.ceil(0.07 * 100) == 8


@given(st.integers(0, 10_000), st.integers(0, 20_000))
def test_num_selected_is_the_mathematical_ceiling(parts, num_valid):
    ratio = parts / 10_000
    assert num_selected(ratio, num_valid) == math.ceil(Fraction(str(ratio)) * num_valid)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, math.nan])
def test_a_ratio_outside_the_unit_interval_is_refused(ratio):
    with pytest.raises(ValueError, match="between 0 and 1"):
        num_selected(ratio, 10)


def test_select_top_golden(valid_of):
    scores = torch.tensor([[0.1, 0.9, 0.3, 0.2, 0.8, 7.0], [0.0, 0.0, 5.0, 5.0, 5.0, 0.0]])
    chosen = select_top(scores, valid_of([5, 6]), 0.3)
    assert chosen.tolist() == [
        [False, True, False, False, True, False],  # ceil(1.5) = 2 of the five valid ones; 7.0 is padding
        [False, False, True, True, False, False],  # ceil(1.8) = 2, the tie goes to the earlier tokens
    ]


def test_ties_go_to_the_earlier_token_whatever_the_sign_of_zero():
    scores = torch.tensor([[-0.0, 0.0, 0.0, 1.0]])
    assert select_top(scores, torch.ones(1, 4, dtype=torch.bool), 0.5).tolist() == [[True, False, False, True]]


def test_all_zero_scores_select_nothing_in_both_scopes(valid_of):
    scores, valid = torch.zeros(2, 10), valid_of([10, 4], 10)
    for scope in ("completion", "group"):
        assert not select(scores, valid, 0.2, scope).any()


def test_non_zero_scores_on_padding_do_not_count(valid_of):
    scores = torch.tensor([[0.0, 0.0, 3.0]])
    for scope in ("completion", "group"):
        assert not select(scores, valid_of([2], 3), 0.5, scope).any()


def test_a_row_without_valid_tokens_selects_none(valid_of):
    scores = torch.ones(2, 3)
    assert select_top(scores, valid_of([0, 3]), 0.5).sum(dim=1).tolist() == [0, 2]
    assert select_quantile(scores, valid_of([0, 3]), 0.5).sum(dim=1).tolist() == [0, 3]
    assert not select_quantile(scores, valid_of([0, 0], 3), 0.5).any()


def test_one_threshold_for_the_group_may_leave_a_completion_without_a_token(valid_of):
    scores = torch.tensor([[5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0]])
    valid = valid_of([4, 4])
    assert select_quantile(scores, valid, 0.5).sum(dim=1).tolist() == [4, 0]
    assert select_top(scores, valid, 0.5).sum(dim=1).tolist() == [2, 2]


def test_group_threshold_keeps_every_tie_and_negative_scores_can_win():
    scores = torch.tensor([[-3.0, -1.0, -1.0, -1.0, -9.0]])
    chosen = select_quantile(scores, torch.ones(1, 5, dtype=torch.bool), 0.2)
    assert chosen.tolist() == [[False, True, True, True, False]]


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=12), min_size=1, max_size=4),
    st.sampled_from([0.01, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0]),
)
def test_select_top_keeps_exactly_the_leading_tokens(rows, ratio):
    width = max(map(len, rows)) + 1
    valid = torch.tensor([[column < len(row) for column in range(width)] for row in rows])
    scores = torch.tensor([row + [99] * (width - len(row)) for row in rows]).float()
    for row, chosen in zip(rows, select_top(scores, valid, ratio).tolist(), strict=True):
        count = math.ceil(Fraction(str(ratio)) * len(row)) if any(row) else 0
        leaders = sorted(range(len(row)), key=lambda token: (-row[token], token))[:count]
        assert [token for token, kept in enumerate(chosen) if kept] == sorted(leaders)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.sampled_from([0.1, 0.2, 0.3, 0.5, 1.0]))
def test_select_quantile_keeps_what_reaches_the_exact_quantile(values, ratio):
    scores = torch.tensor([values]).float()
    position = (1 - Fraction(str(ratio))) * (len(values) - 1)
    ordered, below = sorted(values), math.floor(position)
    above = ordered[min(below + 1, len(values) - 1)]
    threshold = ordered[below] + (position - below) * (above - ordered[below])
    expected = [value >= threshold for value in values] if any(values) else [False] * len(values)
    assert select_quantile(scores, torch.ones_like(scores, dtype=torch.bool), ratio).tolist() == [expected]


def test_select_quantile_is_torch_quantile_on_generic_scores():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 37, generator=generator)
    valid = torch.rand(4, 37, generator=generator) < 0.8
    for ratio in (0.13, 0.2, 0.41):
        threshold = torch.quantile(scores[valid].double(), 1 - ratio)
        assert torch.equal(select_quantile(scores, valid, ratio), (scores.double() >= threshold) & valid)


def test_combine():
    first, second = torch.tensor([[True, True, False]]), torch.tensor([[False, True, False]])
    assert combine_selections([first, second]).tolist() == [[True, True, False]]
    assert combine_selections([first, second], "intersection").tolist() == [[False, True, False]]
    with pytest.raises(ValueError, match="union, intersection"):
        combine_selections([first], "xor")


def test_unknown_scope_names_the_choices():
    with pytest.raises(ValueError, match="completion, group"):
        select(torch.ones(1, 1), torch.ones(1, 1), 0.2, "batch")
