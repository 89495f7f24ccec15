from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ktr.attribution.settings import KeyTokenSettings
from ktr.attribution.weights import share_metrics, soft_weights, token_weights

SOFT = ["softmax", "sigmoid", "linear", "exponential"]
ENTROPY = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.5, 9.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
VISUAL = torch.tensor([[0.0, 3.0, 4.0, 1.0, 0.5, 9.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
LENGTHS = [5, 6]


def test_binary_weights_are_the_union_of_each_signals_top_tokens(valid_of):
    settings = KeyTokenSettings(signals=("entropy", "visual"), top_k=0.4)
    result = token_weights({"entropy": ENTROPY, "visual": VISUAL}, valid_of(LENGTHS), settings)
    assert result.weights_GC.tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    assert result.weights_GC.dtype == torch.float32
    assert result.selected["visual"].tolist() == [[False, True, True, False, False, False], [False] * 6]


def test_intersection_and_one_ratio_for_each_signal(valid_of):
    settings = KeyTokenSettings(
        signals=("entropy", "visual"), top_k={"entropy": 0.4, "visual": 0.2}, combine="intersection"
    )
    result = token_weights({"entropy": ENTROPY, "visual": VISUAL}, valid_of(LENGTHS), settings)
    assert not result.weights_GC.any()  # entropy keeps tokens 0 and 1, visual keeps token 2
    assert [int(result.selected[name].sum()) for name in ("entropy", "visual")] == [2 + 3, 1]


def test_group_scope_reaches_every_signal(valid_of):
    settings = KeyTokenSettings(signals=("entropy",), top_k=0.2, scope="group", delta="signed")
    result = token_weights({"entropy": ENTROPY}, valid_of(LENGTHS), settings)
    assert result.weights_GC.tolist() == [[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]]  # threshold 4.0 of 11 scores


def test_a_missing_signal_is_simply_absent(valid_of):
    valid = valid_of(LENGTHS)
    three = KeyTokenSettings(combine="intersection")
    one = KeyTokenSettings(signals=("entropy",))
    for choice in (three, one):
        result = token_weights({"entropy": ENTROPY}, valid, choice)
        assert list(result.selected) == ["entropy"]
        assert result.weights_GC.sum(dim=1).tolist() == [1, 2]


@pytest.mark.parametrize("signals", [(), ("visual",)])
@pytest.mark.parametrize("form", ["binary", "softmax"])
def test_without_any_score_every_valid_token_weighs_one(valid_of, signals, form):
    valid = valid_of(LENGTHS)
    result = token_weights({}, valid, KeyTokenSettings(signals=signals, weights=form))
    assert torch.equal(result.weights_GC, valid.float())
    assert result.metrics == {"kept/key": 1.0, "kept/plain": 1.0}


def test_all_zero_scores_leave_a_completion_without_weight_and_finite(valid_of):
    settings = KeyTokenSettings(signals=("visual",))
    result = token_weights({"visual": torch.zeros(2, 6)}, valid_of(LENGTHS), settings)
    assert not result.weights_GC.any()
    assert result.metrics["kept/visual"] == 0.0


def test_soft_weights_golden(valid_of):
    scores, valid = torch.tensor([[1.0, 3.0, 50.0]]), valid_of([2], 3)  # standardised: -1 and 1
    e = math.e
    expected = {
        "softmax": [2 / (1 + e**2), 2 * e**2 / (1 + e**2)],
        "sigmoid": [2 / (1 + e), 2 * e / (1 + e)],  # sigmoid(-1) + sigmoid(1) = 1, so scaling doubles them
        "linear": [2 / 3, 4 / 3],
        "exponential": [2 / (1 + e**2), 2 * e**2 / (1 + e**2)],
    }
    for form, values in expected.items():
        weights = soft_weights([scores], valid, form)
        assert weights[0, :2].tolist() == pytest.approx(values), form
        assert weights[0, 2] == 0


def test_exponential_is_clipped_to_five(valid_of):
    scores = torch.tensor([[0.0] * 24 + [1.0]])  # the last one standardises to sqrt(24) = 4.9, exp(4.9) = 134
    weights = soft_weights([scores], valid_of([25]), "exponential")
    low = math.exp(-1 / math.sqrt(24))
    assert float(weights[0, -1] / weights[0, 0]) == pytest.approx(5 / low, rel=1e-5)


def test_linear_ties_share_their_mean_rank(valid_of):
    weights = soft_weights([torch.tensor([[2.0, 1.0, 2.0, 3.0]])], valid_of([4]), "linear")
    assert weights[0].tolist() == pytest.approx([2.5 / 2.5, 1 / 2.5, 2.5 / 2.5, 4 / 2.5])


def test_signals_are_averaged_before_scaling(valid_of):
    valid = valid_of([2])
    first, second = torch.tensor([[0.0, 1.0]]), torch.tensor([[5.0, 4.0]])
    weights = soft_weights([first, second], valid, "sigmoid")
    assert weights[0].tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("form", SOFT)
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_equal_scores_weigh_equally(valid_of, form, value):
    weights = soft_weights([torch.full((3, 7), value)], valid_of([7, 3, 1], 7), form)
    assert torch.allclose(weights, valid_of([7, 3, 1], 7).float())


@given(
    st.lists(st.lists(st.floats(-50, 50, width=32), min_size=0, max_size=9), min_size=1, max_size=4),
    st.sampled_from(SOFT),
)
def test_soft_weights_have_mean_one_follow_the_scores_and_ignore_padding(rows, form):
    width = max(map(len, rows)) + 2
    valid = torch.tensor([[column < len(row) for column in range(width)] for row in rows])
    scores = torch.tensor([row + [torch.inf] * (width - len(row)) for row in rows])
    weights = soft_weights([scores], valid, form)
    assert not weights[~valid].any() and bool((weights >= 0).all())
    for row, row_weights in zip(rows, weights, strict=True):
        if not row:
            continue
        assert float(row_weights.sum()) == pytest.approx(len(row), rel=1e-4)
        by_score = row_weights[torch.tensor(row).argsort()]
        assert bool((by_score.diff() >= -1e-5).all())


@pytest.mark.parametrize("form", SOFT)
def test_soft_weights_still_count_the_selections(valid_of, form):
    settings = KeyTokenSettings(signals=("entropy",), top_k=0.4, weights=form)
    result = token_weights({"entropy": ENTROPY}, valid_of(LENGTHS), settings)
    assert result.metrics["kept/entropy"] == pytest.approx(5 / 11)
    assert bool((result.weights_GC[valid_of(LENGTHS)] > 0).all())


def test_metrics_golden(valid_of):
    settings = KeyTokenSettings(signals=("entropy", "visual"), top_k=0.4)
    metrics = token_weights({"entropy": ENTROPY, "visual": VISUAL}, valid_of(LENGTHS), settings).metrics
    assert metrics == pytest.approx(
        {
            "kept/entropy": 5 / 11,
            "kept/visual": 2 / 11,
            "kept/union": 6 / 11,
            "kept/key": 6 / 11,
            "kept/plain": 0.0,
            "overlap/entropy_visual": 1 / 6,
        }
    )


def test_metrics_do_not_depend_on_the_order_of_signals(valid_of):
    scores = {"visual": VISUAL, "entropy": ENTROPY}
    for signals in (("entropy", "visual"), ("visual", "entropy")):
        metrics = token_weights(scores, valid_of(LENGTHS), KeyTokenSettings(signals=signals)).metrics
        assert "overlap/entropy_visual" in metrics


def test_metrics_of_several_prompts_pool_tokens_of_those_that_have_the_signal(valid_of):
    settings = KeyTokenSettings(signals=("entropy", "visual"), top_k=0.4)
    video = token_weights({"entropy": ENTROPY, "visual": VISUAL}, valid_of(LENGTHS), settings)
    text = token_weights({"entropy": ENTROPY[:, :5]}, valid_of([5, 5]), settings)
    pooled = share_metrics([video.counts, text.counts])
    assert pooled["kept/entropy"] == pytest.approx((5 + 4) / (11 + 10))
    assert pooled["kept/visual"] == pytest.approx(2 / 11)
    assert pooled == share_metrics([Counter(video.counts) + Counter(text.counts)])


def test_shares_of_nothing_are_left_out(valid_of):
    assert token_weights({"entropy": ENTROPY}, valid_of([0, 0], 6), KeyTokenSettings()).metrics == {}


def test_a_score_that_is_not_finite_is_refused_by_name(valid_of):
    scores = ENTROPY.clone()
    scores[1, 2] = torch.nan
    with pytest.raises(ValueError, match="entropy score of a valid token is not finite"):
        token_weights({"entropy": scores}, valid_of(LENGTHS), KeyTokenSettings())
    scores = ENTROPY.clone()
    scores[0, 5] = torch.nan  # padding
    token_weights({"entropy": scores}, valid_of(LENGTHS), KeyTokenSettings())


def test_a_signal_that_was_not_asked_for_is_refused(valid_of):
    with pytest.raises(ValueError, match="visual score was given"):
        token_weights({"visual": VISUAL}, valid_of(LENGTHS), KeyTokenSettings(signals=("entropy",)))
