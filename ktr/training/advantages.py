"""Advantages of a prompt's completions relative to their group.

Shapes: N prompts, G completions of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SCALES = ("group", "none")
EPSILON = 1e-4
SAME_REWARD = 1e-6


@dataclass(frozen=True, eq=False)
class GroupAdvantages:
    """Advantages and the statistics they came from.

    Attributes:
        advantages_NG: float32; 0 for completions that were not scored.
        mean_N: mean reward of each group's scored completions, NaN when none was scored.
        std_N: their sample standard deviation, NaN when fewer than two were scored.
        zero_variance_N: True where the group prefers nothing: all its scored completions earned the same reward, or
            fewer than two were scored. All its advantages are exactly 0, under every scale.
    """

    advantages_NG: Tensor
    mean_N: Tensor
    std_N: Tensor
    zero_variance_N: Tensor


def group_advantages(rewards_NG: Tensor, *, scale: str = "group", epsilon: float = EPSILON) -> GroupAdvantages:
    """``(R - mean) / (std + epsilon)`` over the completions of ONE prompt.

    The standard deviation is the sample one (n - 1 in the denominator), as in Video-R1's code and in TRL. A NaN reward
    says that nothing could score the completion: it is left out of mean and deviation and its advantage is 0, so it
    neither moves the policy nor the others' baseline. Computed in float64: the mean of equal float32 rewards can
    differ from them by a rounding that dividing by `epsilon` would turn into a gradient.

    Args:
        rewards_NG: rewards, finite or NaN.
        scale: divide by the ``group``'s deviation (GRPO, DeepSeekMath, arXiv 2402.03300, section 4.1), or by ``none``
            (Dr. GRPO, arXiv 2503.20783, section 3.2).
        epsilon: added to the deviation.

    Raises:
        ValueError: for an infinite reward or an unknown scale.
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}")
    if bool(torch.isinf(rewards_NG).any()):
        raise ValueError("a reward is infinite; a reward function must return finite numbers, or None to abstain")
    assert rewards_NG.dim() == 2, "one row for each prompt"
    scored_NG = ~torch.isnan(rewards_NG)
    rewards_NG = rewards_NG.double()
    mean_N = rewards_NG.nanmean(dim=1)
    std_N = _sample_std(rewards_NG, scored_NG)
    lowest_N = rewards_NG.masked_fill(~scored_NG, torch.inf).amin(dim=1)
    highest_N = rewards_NG.masked_fill(~scored_NG, -torch.inf).amax(dim=1)
    zero_variance_N = highest_N - lowest_N <= SAME_REWARD  # -inf where nothing was scored
    advantages_NG = rewards_NG - mean_N.unsqueeze(1)
    if scale == "group":
        advantages_NG = advantages_NG / (std_N.unsqueeze(1) + epsilon)
    silent_NG = zero_variance_N.unsqueeze(1) | ~scored_NG
    return GroupAdvantages(
        advantages_NG=advantages_NG.masked_fill(silent_NG, 0.0).float(),
        mean_N=mean_N.float(),
        std_N=std_N.float(),
        zero_variance_N=zero_variance_N,
    )


def _sample_std(rewards_NG: Tensor, scored_NG: Tensor) -> Tensor:
    count_N = scored_NG.sum(dim=1)
    squares_NG = (rewards_NG - rewards_NG.nanmean(dim=1, keepdim=True)).square()
    variance_N = squares_NG.nansum(dim=1) / (count_N - 1).clamp(min=1)
    return torch.where(count_N > 1, variance_N.sqrt(), torch.nan)
