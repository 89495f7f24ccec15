"""Sampled groups on their way to the rewards: the columns that rewards are given, and a line for each that raised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ktr.models.encoded_prompt import EncodedPrompt
from ktr.rewards.runner import RewardFailure, RewardRunner, RewardTable
from ktr.rollout.engine import Completion


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
