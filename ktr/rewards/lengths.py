"""Reward components that look at how a reply is written: its length in tokens, and its repetitions.

Lengths are those of `completion_ids`, the tokens that were sampled, whatever tokens an attribution selects. Where a
component needs to know which replies are right, it uses the scores of the component named "accuracy" when the caller
hands them over as the column `accuracy_reward`, and its own accuracy otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from ktr.rewards.components import AccuracyReward, Completion, completion_text
from ktr.rewards.groups import group_members
from ktr.rewards.text import normalise, words


class LengthWindowReward:
    """Video-R1's length reward (2503.21776, section 3.3): `bonus` for a right reply of `low` to `high` tokens.

    Paid only where at least `min_right` replies of the prompt's group are right (accuracy above `threshold`).
    A reply without an accuracy gets none.
    """

    def __init__(
        self,
        bonus: float = 0.2,
        low: int = 320,
        high: int = 512,
        min_right: int = 2,
        threshold: float = 0.1,
        policy: str = "default",
    ) -> None:
        if not 0 <= low <= high:
            raise ValueError(f"the length window needs 0 <= low <= high, not low={low}, high={high}")
        self.bonus, self.low, self.high, self.min_right, self.threshold = bonus, low, high, min_right, threshold
        self._accuracy = AccuracyReward(policy=policy)

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        completion_ids: Sequence[Sequence[int]],
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
        lengths = [len(ids) for ids in completion_ids]
        rewards: list[float | None] = [0.0] * len(completions)
        for members in group_members(prompts, group, id):
            right = [i for i in members if (accuracy_reward[i] or 0.0) > self.threshold]
            if len(right) >= self.min_right:
                for i in right:
                    if self.low <= lengths[i] <= self.high:
                        rewards[i] = self.bonus
        return rewards


class SoftOverlongReward:
    """DAPO's soft punishment of long replies (2503.14476, equation 13).

    0 up to `max_length - buffer` tokens, then falling linearly to -1 at `max_length`, and -1 beyond.
    """

    rowwise = True

    def __init__(self, max_length: int, buffer: int) -> None:
        if not 0 < buffer <= max_length:
            raise ValueError(
                f"soft overlong needs 0 < buffer <= max_length, not buffer={buffer}, max_length={max_length}"
            )
        self.max_length, self.buffer = max_length, buffer

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        completion_ids: Sequence[Sequence[int]],
        **columns: Any,
    ) -> list[float | None]:
        soft_limit = self.max_length - self.buffer
        return [max(-1.0, min(0.0, (soft_limit - len(ids)) / self.buffer)) for ids in completion_ids]


class CosineLengthReward:
    """A reward that moves along a half cosine with the length, down for right and up for wrong replies.

    "Demystifying long chain-of-thought reasoning" (2502.03373, section 4.2): short right replies earn most, short wrong
    ones least; from `max_length` tokens on the end values hold. Abstains where the accuracy does.
    """

    def __init__(
        self,
        max_length: int,
        right: tuple[float, float] = (1.0, 0.5),
        wrong: tuple[float, float] = (-1.0, -0.5),
        threshold: float = 0.1,
        policy: str = "default",
    ) -> None:
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, not {max_length}")
        self.max_length, self.threshold = max_length, threshold
        self.right, self.wrong = tuple(right), tuple(wrong)
        self._accuracy = AccuracyReward(policy=policy)

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        completion_ids: Sequence[Sequence[int]],
        problem_type: Sequence[str],
        answer: Sequence[str],
        options: Sequence[Sequence[str] | None] | None = None,
        accuracy_reward: Sequence[float | None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        if accuracy_reward is None:
            accuracy_reward = self._accuracy(prompts, completions, problem_type, answer, options)
        return [self._at(len(ids), score) for ids, score in zip(completion_ids, accuracy_reward, strict=True)]

    def _at(self, length: int, accuracy: float | None) -> float | None:
        if accuracy is None:
            return None
        at_start, at_end = self.right if accuracy > self.threshold else self.wrong
        share = (1.0 + math.cos(math.pi * min(1.0, length / self.max_length))) / 2.0
        return at_end + (at_start - at_end) * share


class RepetitionPenalty:
    """`-weight` times the share of a reply's n-grams that repeat an earlier one; 0 for replies shorter than `ngram`.

    The same paper's repetition penalty (2502.03373, section 4.3), over words; characters in scripts without spaces.
    """

    rowwise = True

    def __init__(self, ngram: int = 4, weight: float = 1.0) -> None:
        if ngram < 1 or weight < 0.0:
            raise ValueError(f"the repetition penalty needs ngram >= 1 and weight >= 0, not {ngram} and {weight}")
        self.ngram, self.weight = ngram, weight

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        return [self._penalty(words(normalise(completion_text(completion)))) for completion in completions]

    def _penalty(self, tokens: list[str]) -> float:
        total = len(tokens) - self.ngram + 1
        if total <= 0:
            return 0.0
        distinct = {tuple(tokens[i : i + self.ngram]) for i in range(total)}
        return -self.weight * (1.0 - len(distinct) / total)
