"""From prompts to scored groups: sampling, rewards, advantages, and new tries for groups that teach nothing.

Everything of a step's rollout that a rank does alone. Whether a reward failed is then told to all ranks, so that they
end together.

Shapes: N prompts, G completions of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from accelerate.utils import gather_object

from ktr.attribution.views import shuffle_seed
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.rewards.runner import RewardFailure, RewardRunner, RewardTable
from ktr.rewards.signatures import takes
from ktr.rollout.engine import RolloutEngine, SamplingSettings
from ktr.training.advantages import GroupAdvantages, group_advantages
from ktr.training.sampled_groups import SampledGroup, reward_columns, score_noting_errors
from ktr.training.shuffled_rollouts import COLUMN, ShuffledAccuracy, ShuffledRollouts, comparison_values


@dataclass(eq=False)
class Rollout:
    """A step's groups as they go into the loss.

    Attributes:
        shuffled: each group's accuracies on shuffled frames; None where nothing was compared.
        tries_N: how often each group was sampled.
        errors: one line for every reward that raised, in any try.
        comparison: values of T-GRPO's metrics, see `comparison_values`.
    """

    sampled: list[SampledGroup]
    table: RewardTable
    advantages: GroupAdvantages
    shuffled: list[ShuffledAccuracy]
    tries_N: list[int]
    errors: list[dict[str, Any]] = field(default_factory=list)
    comparison: dict[str, list[float]] = field(default_factory=dict)


class GroupSampler:
    """Samples groups of completions and scores them.

    Args:
        num_completions: G.
        scale: of advantages, see `group_advantages`.
        seed: of the run.
        rank: of this process; ranks sample apart.
        resample_limit: new tries for the groups whose rewards are all equal: their completions are drawn again, for
            the same prompts, until they differ or the tries are used up. So a step has the same prompts and the same
            number of groups on every rank, however many of them needed it.
        shuffled: samples the comparison that T-GRPO's reward asks for, once a step and prompt.
        autocast: precision that the policy samples in.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        rewards: RewardRunner,
        sampling: SamplingSettings,
        *,
        num_completions: int,
        scale: str = "group",
        seed: int = 0,
        rank: int = 0,
        resample_limit: int = 0,
        shuffled: ShuffledRollouts | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.engine = engine
        self.rewards = rewards
        self.sampling = sampling
        self.num_completions = num_completions
        self.scale = scale
        self.seed = seed
        self.rank = rank
        self.resample_limit = resample_limit
        self.shuffled = shuffled
        self.autocast = autocast

    def __call__(self, prompts: Sequence[EncodedPrompt], step: int) -> Rollout:
        """The scored groups of `prompts`. Collective: all ranks call it for the same step.

        Raises:
            RewardFailure: on every rank, when rewards failed on any.
        """
        failure, rollout = None, None
        try:
            rollout = self._rollout(prompts, step)
        except RewardFailure as error:
            failure = error
        failures = gather_object([] if failure is None else [(str(failure), failure.lines)])
        if failures:
            raise RewardFailure(failures[0][0], lines=[line for _, lines in failures for line in lines]) from failure
        assert rollout is not None, "without a failure there is a rollout"
        return rollout

    def _rollout(self, prompts: Sequence[EncodedPrompt], step: int) -> Rollout:
        errors: list[dict[str, Any]] = []
        shuffled: list[ShuffledAccuracy] = [None] * len(prompts)
        if self.shuffled is not None:
            with self.autocast():
                shuffled = self.shuffled.accuracies(self.engine, prompts, self.sampling, step, self.rank, errors)
        sampled = self._sample(prompts, shuffle_seed(self.seed, step, f"rollout {self.rank}"))
        table = self._score(sampled, shuffled, errors, step)
        tries = [1] * len(prompts)
        for attempt in range(1, self.resample_limit + 1):
            flat = self._advantages(table).zero_variance_N.nonzero().flatten().tolist()
            if not flat:
                break
            seed = shuffle_seed(self.seed, step, f"rollout {self.rank} try {attempt}")
            again = self._sample([prompts[g] for g in flat], seed)
            table = self._replaced(table, self._score(again, [shuffled[g] for g in flat], errors, step), flat)
            for g, group in zip(flat, again, strict=True):
                sampled[g] = group
                tries[g] += 1
        rollout = Rollout(sampled, table, self._advantages(table), shuffled, tries, errors)
        if self.shuffled is not None:
            paying = [name for name, (function, _) in self.rewards.components.items() if takes(function, COLUMN)]
            rollout.comparison = comparison_values(shuffled, table, self.num_completions, paying)
        return rollout

    def _sample(self, prompts: Sequence[EncodedPrompt], seed: int) -> list[SampledGroup]:
        with self.autocast():
            completions = self.engine.generate(prompts, self.num_completions, self.sampling, seed)
        return [SampledGroup(prompt, replies) for prompt, replies in zip(prompts, completions, strict=True)]

    def _score(
        self,
        sampled: Sequence[SampledGroup],
        shuffled: Sequence[ShuffledAccuracy],
        errors: list[dict[str, Any]],
        step: int,
    ) -> RewardTable:
        columns = reward_columns(sampled)
        if self.shuffled is not None:
            columns[COLUMN] = [of_group for of_group in shuffled for _ in range(self.num_completions)]
        replies = [reply.text for group in sampled for reply in group.completions]
        return score_noting_errors(self.rewards, columns, replies, errors, step)

    def _replaced(self, table: RewardTable, new: RewardTable, groups: Sequence[int]) -> RewardTable:
        """`table` with the scores of some groups from another table, which holds those groups alone."""
        G = self.num_completions
        places = [g * G + i for g in groups for i in range(G)]
        total, by_component = list(table.total), {name: list(scores) for name, scores in table.by_component.items()}
        for position, place in enumerate(places):
            total[place] = new.total[position]
            for name, scores in by_component.items():
                scores[place] = new.by_component[name][position]
        kept = [error for error in table.errors if error.position not in set(places)]
        moved = [replace(error, position=places[error.position]) for error in new.errors]
        return RewardTable(total, by_component, kept + moved)

    def _advantages(self, table: RewardTable) -> GroupAdvantages:
        rewards = [float("nan") if total is None else total for total in table.total]
        return group_advantages(torch.tensor(rewards).view(-1, self.num_completions), scale=self.scale)
