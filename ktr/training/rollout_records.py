"""What a rollout leaves on record: its metrics over all ranks, and the lines of `completions.jsonl`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from accelerate.utils import gather_object

from ktr.training.rollouts import Rollout


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
