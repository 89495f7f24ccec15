"""T-GRPO's temporal bonus (Video-R1, 2503.21776, section 3.2): pay right answers where the order of frames helped."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from ktr.rewards.components import AccuracyReward, Completion
from ktr.rewards.groups import group_members


@dataclass(frozen=True)
class TemporalBonus:
    """The bonus of each ordered completion of a group, and whether the group was paid (None: nothing to compare)."""

    bonuses: tuple[float, ...]
    paid: bool | None


def temporal_bonus(
    ordered: Sequence[float | None],
    shuffled: Sequence[float | None],
    *,
    alpha: float = 0.3,
    mu: float = 0.8,
    threshold: float = 0.1,
) -> TemporalBonus:
    """The bonus of one prompt's ordered completions.

    With `p` and `q` the mean accuracies on ordered and shuffled frames, every right ordered completion (accuracy above
    `threshold`) gets `alpha` when `p >= mu * q`. Nothing is paid where no ordered completion is right, or where there
    is nothing to compare: an image has no shuffled completions. Abstaining accuracies (None) are left out of the means.

    >>> temporal_bonus([1.0, 0.0], [0.0]).bonuses
    (0.3, 0.0)
    """
    nothing = (0.0,) * len(ordered)
    known = [score for score in ordered if score is not None]
    known_shuffled = [score for score in shuffled if score is not None]
    if not known or not known_shuffled:
        return TemporalBonus(nothing, None)
    right = [score is not None and score > threshold for score in ordered]
    mean_ordered = sum(known) / len(known)
    mean_shuffled = sum(known_shuffled) / len(known_shuffled)
    if not any(right) or mean_ordered < mu * mean_shuffled:
        return TemporalBonus(nothing, False)
    return TemporalBonus(tuple(alpha if is_right else 0.0 for is_right in right), True)


class TemporalReward:
    """`temporal_bonus` per prompt group, as a reward component.

    The column `shuffled_accuracy` holds, for every completion, the accuracies of its group's completions on shuffled
    frames (the same list along the group; empty or None for prompts that have none).
    """

    def __init__(self, alpha: float = 0.3, mu: float = 0.8, threshold: float = 0.1, policy: str = "default") -> None:
        if mu < 0.0:
            raise ValueError(f"mu must not be negative, not {mu}")
        self.alpha, self.mu, self.threshold = alpha, mu, threshold
        self._accuracy = AccuracyReward(policy=policy)

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        shuffled_accuracy: Sequence[Sequence[float | None] | None],
        problem_type: Sequence[str],
        answer: Sequence[str],
        options: Sequence[Sequence[str] | None] | None = None,
        accuracy_reward: Sequence[float | None] | None = None,
        group: Sequence[Hashable] | None = None,
        id: Sequence[Hashable] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        if accuracy_reward is None:
            accuracy_reward = self._accuracy(prompts, completions, problem_type, answer, options)
        rewards: list[float | None] = [0.0] * len(completions)
        for members in group_members(prompts, group, id):
            bonus = temporal_bonus(
                [accuracy_reward[i] for i in members],
                shuffled_accuracy[members[0]] or (),
                alpha=self.alpha,
                mu=self.mu,
                threshold=self.threshold,
            )
            for i, value in zip(members, bonus.bonuses, strict=True):
                rewards[i] = value
        return rewards
