from __future__ import annotations

import pytest
import torch

from ktr.attribution.scores import entropy_score, temporal_score, visual_score

FULL = torch.tensor([[-1.0, -0.5, -3.0, -9.0]])
BLIND = torch.tensor([[-1.5, -0.25, -3.0, -1.0]])
VALID = torch.tensor([[True, True, True, False]])


def test_visual_score_is_the_absolute_change_and_zero_on_padding():
    assert visual_score(FULL, BLIND, VALID).tolist() == [[0.5, 0.25, 0.0, 0.0]]


def test_signed_visual_score_is_full_minus_blind():
    assert visual_score(FULL, BLIND, VALID, "signed").tolist() == [[0.5, -0.25, 0.0, 0.0]]


def test_temporal_score_averages_the_absolute_changes_not_the_log_probs():
    shuffled = torch.stack([FULL + 1.0, FULL - 1.0])
    assert temporal_score(FULL, shuffled, VALID).tolist() == [[1.0, 1.0, 1.0, 0.0]]
    assert temporal_score(FULL, shuffled, VALID, "signed").tolist() == [[0.0, 0.0, 0.0, 0.0]]


def test_temporal_score_of_one_shuffle_is_the_visual_formula():
    assert torch.equal(temporal_score(FULL, BLIND.unsqueeze(0), VALID), visual_score(FULL, BLIND, VALID))


def test_padding_may_hold_anything():
    full, blind = FULL.clone(), BLIND.clone()
    full[0, 3], blind[0, 3] = -torch.inf, -torch.inf
    entropies = torch.tensor([[0.1, 0.2, 0.3, torch.nan]])
    assert visual_score(full, blind, VALID)[0, 3] == 0
    assert temporal_score(full, blind.unsqueeze(0), VALID)[0, 3] == 0
    assert torch.equal(entropy_score(entropies, VALID), torch.tensor([[0.1, 0.2, 0.3, 0.0]]))


def test_scores_carry_no_gradient():
    full = FULL.clone().requires_grad_()
    assert not visual_score(full, BLIND, VALID).requires_grad
    assert not temporal_score(full, BLIND.unsqueeze(0), VALID).requires_grad
    assert not entropy_score(full, VALID).requires_grad


def test_half_precision_log_probs_are_refused():
    with pytest.raises(AssertionError, match="float32"):
        visual_score(FULL.bfloat16(), BLIND.bfloat16(), VALID)


def test_unknown_delta_names_the_choices():
    with pytest.raises(ValueError, match="delta must be one of absolute, signed"):
        visual_score(FULL, BLIND, VALID, "squared")
