"""Sampled groups between rollout and loss: columns for rewards, metrics of a rollout, lines of `completions.jsonl`.

Shapes: N prompts, G completions of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accelerate.utils import gather_object

from ktr.models.prompt_encoder import EncodedPrompt
from ktr.rewards.runner import RewardFailure, RewardRunner, RewardTable
from ktr.rollout.engine import Completion

if TYPE_CHECKING:
    from ktr.training.rollouts import Rollout


@dataclass(frozen=True, eq=False)
class SampledGroup:
    """A prompt and the completions sampled for it."""

    prompt: EncodedPrompt
    completions: Sequence[Completion]


# Columns that every reward is given, one value a completion, beside `prompts` and `completions`.
REWARD_COLUMNS = (
    "id", "question", "problem_type", "options", "answer", "category", "modality", "duration", "source", "captions",
    "completion_ids", "truncated", "group",
)  # fmt: skip
_ROW_COLUMNS = (
    "id", "question", "problem_type", "answer", "category", "modality", "duration", "source", "captions",
)  # fmt: skip


def reward_columns(sampled: Sequence[SampledGroup]) -> dict[str, list[Any]]:
    """Values of `REWARD_COLUMNS` for each completion, groups one after another."""
    columns: dict[str, list[Any]] = {name: [] for name in REWARD_COLUMNS}
    for number, group in enumerate(sampled):
        row = group.prompt.row
        for reply in group.completions:
            for name in _ROW_COLUMNS:
                columns[name].append(getattr(row, name))
            columns["options"].append(list(row.options))
            columns["completion_ids"].append(list(reply.token_ids))
            columns["truncated"].append(reply.truncated)
            columns["group"].append(number)
    return columns


def score_noting_errors(
    rewards: RewardRunner,
    columns: dict[str, list[Any]],
    replies: Sequence[str],
    errors: list[dict[str, Any]],
    step: int,
) -> RewardTable:
    """The rewards of `replies`; each that raised becomes a line of `errors`, for `reward_errors.jsonl`.

    Raises RewardFailure, which then holds all of these lines.
    """
    failure: RewardFailure | None = None
    try:
        table = rewards.score(columns["question"], replies, **columns)
        raised = table.errors
    except RewardFailure as error:
        failure, raised = error, error.errors
    errors += [
        {
            "step": step,
            "id": error.row_id,
            "component": error.component,
            "error": error.message,
            "reply": replies[error.position],
            "trace": error.trace,
        }
        for error in raised
    ]
    if failure is not None:
        failure.lines = errors
        raise failure
    return table


def gathered_metrics(rollout: Rollout) -> dict[str, float]:
    """Means over the completions and groups of ALL ranks; a mean of nothing is left out.

    Rewards are logged by component, then by problem type and modality; `rewards/errors` counts components that raised.
    Lengths are those of the full completions. `groups/resampled` is the share of groups that were sampled again,
    `groups/zero_variance` of those that go into the loss without a spread.
    """
    sampled, table, advantages = rollout.sampled, rollout.table, rollout.advantages
    values: dict[str, list[float]] = defaultdict(list)
    replies = [(group, reply) for group in sampled for reply in group.completions]
    for i, (group, reply) in enumerate(replies):
        row = group.prompt.row
        values["rewards/abstained"].append(float(table.total[i] is None))
        values["rewards/errors"].append(float(sum(error.position == i for error in table.errors)))
        if (total := table.total[i]) is not None:
            values["reward"].append(total)
        for name, scores in table.by_component.items():
            if (score := scores[i]) is not None:
                for key in (name, f"{name}/{row.problem_type}", f"{name}/{row.modality}"):
                    values[f"rewards/{key}/mean"].append(score)
        values["completions/mean_length"].append(float(len(reply.token_ids)))
        values["completions/truncated"].append(float(reply.truncated))
    for group in sampled:
        distinct = len({tuple(reply.token_ids) for reply in group.completions})
        values["completions/distinct"].append(distinct / len(group.completions))
    values["groups/resampled"] += [float(tries > 1) for tries in rollout.tries_N]
    values["groups/zero_variance"] += [float(flat) for flat in advantages.zero_variance_N.tolist()]
    values["reward_std"] += [std for std in advantages.std_N.tolist() if std == std]
    for name, of_groups in rollout.comparison.items():
        values[name] += of_groups
    gathered: dict[str, list[float]] = defaultdict(list)
    for of_rank in gather_object([dict(values)]):
        for name, numbers in of_rank.items():
            gathered[name] += numbers
    return {name: sum(numbers) / len(numbers) for name, numbers in sorted(gathered.items()) if numbers}


def completion_rows(rollout: Rollout, step: int) -> list[dict[str, Any]]:
    """One line a completion: what was asked and shown, what was replied, what each reward said."""
    table = rollout.table
    rows = []
    i = 0
    for number, group in enumerate(rollout.sampled):
        row, frames = group.prompt.row, group.prompt.frames
        for place, reply in enumerate(group.completions):
            rows.append(
                {
                    "step": step,
                    "id": row.id,
                    "question": row.question,
                    "answer": row.answer,
                    "frames": None if frames is None else list(frames.indices),
                    "reply": reply.text,
                    "tokens": len(reply.token_ids),
                    "truncated": reply.truncated,
                    "reward": table.total[i],
                    "rewards": {name: scores[i] for name, scores in table.by_component.items()},
                    "advantage": float(rollout.advantages.advantages_NG[number, place]),
                }
            )
            if rollout.shuffled[number] is not None:
                rows[-1]["shuffled_accuracy"] = rollout.shuffled[number]
            i += 1
    return rows
