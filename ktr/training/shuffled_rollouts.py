"""T-GRPO's comparison (Video-R1, arXiv 2503.21776, section 3.2): how right is the policy on shuffled frames?

Every video prompt of a step is asked again with its frames in a random order, never their own, and its G/2 completions
are scored by the component `accuracy`. They serve the comparison alone: no loss and no gradient comes from them.

Shapes: G completions of a prompt, T frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ktr.attribution.views import shuffle_seed, shuffled_orders
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.prompt_encoder import PromptEncoder
from ktr.rewards.runner import RewardRunner, RewardTable
from ktr.rewards.signatures import takes
from ktr.rollout.engine import RolloutEngine, SamplingSettings
from ktr.training.key_tokens import num_grids
from ktr.training.sampled_groups import SampledGroup, reward_columns, score_noting_errors

COLUMN = "shuffled_accuracy"
ACCURACY = "accuracy"
# Accuracies of a prompt's completions on shuffled frames, None in a list where one was not scored; None for a prompt
# whose frames have no order.
ShuffledAccuracy = list[float | None] | None


def wants_shuffled(rewards: RewardRunner) -> bool:
    """Whether a reward component takes the column `shuffled_accuracy`.

    Raises:
        ValueError: one does, and there is no component `accuracy` to compare by.
    """
    wanting = [name for name, (function, _) in rewards.components.items() if takes(function, COLUMN)]
    if wanting and ACCURACY not in rewards.components:
        raise ValueError(
            f"the reward {wanting[0]!r} compares accuracies with and without the order of frames: it needs a component "
            f"named {ACCURACY!r}, and there are {', '.join(rewards.components)}"
        )
    return bool(wanting)


class ShuffledRollouts:
    """Samples and scores completions of video prompts on shuffled frames.

    Args:
        encoder: cuts the reordered frames into patches again; ids, positions and times stay.
        rewards: those of the run; their component `accuracy` scores, under the same bound on errors.
        num_completions: of each prompt, half a group in the paper.
        seed: of the run; with a step and a row's id it decides an order.
    """

    def __init__(self, encoder: PromptEncoder, rewards: RewardRunner, *, num_completions: int, seed: int) -> None:
        self.encoder = encoder
        self.accuracy = RewardRunner(
            {ACCURACY: rewards.components[ACCURACY]}, rewards.max_error_share, rewards.min_scores
        )
        self.num_completions = num_completions
        self.seed = seed

    def shuffled(self, prompt: EncodedPrompt, step: int) -> EncodedPrompt | None:
        """The prompt with its frames out of order; None for an image, a text, and a video of one temporal patch."""
        if prompt.modality != "video":
            return None
        seed = shuffle_seed(self.seed, step, f"shuffled frames {prompt.row.id}")
        size = self.encoder.family.temporal_patch_size
        orders = shuffled_orders(num_grids(prompt), 1, seed, granularity="frame", frames_per_grid=size)
        return self.encoder.with_frame_order(prompt, orders[0]) if orders else None

    def accuracies(
        self,
        engine: RolloutEngine,
        prompts: Sequence[EncodedPrompt],
        sampling: SamplingSettings,
        step: int,
        rank: int,
        errors: list[dict[str, Any]],
    ) -> list[ShuffledAccuracy]:
        """For each prompt, the accuracies of its completions on shuffled frames.

        Rewards that raised become lines of `errors`. Raises RewardFailure.
        """
        asked = {place: view for place, prompt in enumerate(prompts) if (view := self.shuffled(prompt, step))}
        found: list[ShuffledAccuracy] = [None] * len(prompts)
        if not asked:
            return found
        seed = shuffle_seed(self.seed, step, f"shuffled rollout {rank}")
        completions = engine.generate(list(asked.values()), self.num_completions, sampling, seed)
        sampled = [SampledGroup(view, replies) for view, replies in zip(asked.values(), completions, strict=True)]
        replies = [reply.text for group in sampled for reply in group.completions]
        table = score_noting_errors(self.accuracy, reward_columns(sampled), replies, errors, step)
        scores = iter(table.by_component[ACCURACY])
        for place, group in zip(asked, sampled, strict=True):
            found[place] = [next(scores) for _ in group.completions]
        return found


def comparison_values(
    shuffled: Sequence[ShuffledAccuracy], table: RewardTable, num_completions: int, paying: Sequence[str]
) -> dict[str, list[float]]:
    """Values for `temporal/...` metrics, one a compared group: mean accuracies, and whether the group was paid.

    Args:
        shuffled: one entry a group.
        table: rewards of the groups' own completions.
        num_completions: of a group.
        paying: the components that take the comparison.
    """
    values: dict[str, list[float]] = {"accuracy": [], "shuffled_accuracy": [], "paid": []}
    for number, of_group in enumerate(shuffled):
        own = slice(number * num_completions, (number + 1) * num_completions)
        known = [score for score in table.by_component[ACCURACY][own] if score is not None]
        known_shuffled = [score for score in of_group or () if score is not None]
        if not known or not known_shuffled:
            continue
        values["accuracy"].append(sum(known) / len(known))
        values["shuffled_accuracy"].append(sum(known_shuffled) / len(known_shuffled))
        values["paid"].append(float(any(score for name in paying for score in table.by_component[name][own])))
    return {f"temporal/{name}": of_groups for name, of_groups in values.items()}
