"""Which completions of a batch belong to one prompt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any


def group_members(
    prompts: Sequence[Any], group: Sequence[Hashable] | None = None, id: Sequence[Hashable] | None = None
) -> list[list[int]]:
    """The positions of each prompt's completions, groups in order of first appearance.

    A `group` column decides, then an `id` column; without either, neighbours with equal prompts are one group.
    """
    keys = group if group is not None else id
    if keys is not None:
        members: dict[Hashable, list[int]] = {}
        for position, key in enumerate(keys):
            members.setdefault(key, []).append(position)
        return list(members.values())
    groups: list[list[int]] = []
    for position, prompt in enumerate(prompts):
        if groups and prompts[groups[-1][0]] == prompt:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups
