from __future__ import annotations

import pytest
import torch

from ktr.rollout.engine import SamplingSettings
from ktr.rollout.sampling import TokenSampler

PROBS = torch.tensor([0.4, 0.3, 0.2, 0.1])


def draw_many(settings: SamplingSettings, probs: torch.Tensor = PROBS, banned: tuple[int, ...] = ()) -> torch.Tensor:
    """Share of each token over an even grid of uniform numbers."""
    uniform = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    sampler = TokenSampler(settings, banned, "cpu")
    tokens, _ = sampler.draw(probs.log().expand(len(uniform), -1), uniform)
    return torch.bincount(tokens, minlength=len(probs)) / len(uniform)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SamplingSettings(1), [0.4, 0.3, 0.2, 0.1]),
        (SamplingSettings(1, temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        (SamplingSettings(1, top_k=2), [4 / 7, 3 / 7, 0, 0]),
        (SamplingSettings(1, top_p=0.8), [4 / 9, 3 / 9, 2 / 9, 0]),
        (SamplingSettings(1, temperature=0.5, top_k=3, top_p=0.6), [16 / 25, 9 / 25, 0, 0]),
    ],
)
def test_draws_follow_the_distribution(settings: SamplingSettings, expected: list[float]) -> None:
    assert draw_many(settings).tolist() == pytest.approx(expected, abs=2e-4)


def test_banned_tokens_are_never_drawn() -> None:
    assert draw_many(SamplingSettings(1), banned=(0, 3)).tolist() == pytest.approx([0, 0.6, 0.4, 0], abs=2e-4)
    tokens, logps = TokenSampler(SamplingSettings(1, temperature=0), (0,), "cpu").draw(PROBS.log()[None], None)
    assert tokens.tolist() == [1]
    assert logps.exp().tolist() == pytest.approx([0.3])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logps_are_those_before_the_cut(temperature: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(64, 50)
    sampler = TokenSampler(SamplingSettings(1, temperature=temperature, top_p=0.3, top_k=5), (7,), "cpu")
    tokens, logps = sampler.draw(logits, torch.rand(64, dtype=torch.float64))
    expected = (logits / temperature).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(logps, expected)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_extreme_numbers_draw_possible_tokens(uniform: float) -> None:
    logits = torch.tensor([[-torch.inf, 1.0, 2.0, -torch.inf]])
    tokens, _ = TokenSampler(SamplingSettings(1), (), "cpu").draw(logits, torch.tensor([uniform], dtype=torch.float64))
    assert tokens.tolist() == [1 if uniform == 0 else 2]


@pytest.mark.parametrize(
    "wrong",
    [{"max_new_tokens": 0}, {"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -1}],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingSettings(**({"max_new_tokens": 4} | wrong))
