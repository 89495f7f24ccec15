"""Prompts and an engine for tests of rollouts that need no model."""

from __future__ import annotations

import torch

from ktr.data.rows import Row
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.rollout.engine import Completion


def prompts_of(*names: str) -> list[EncodedPrompt]:
    """Text prompts of these ids."""
    ids_P = torch.arange(3)
    return [
        EncodedPrompt(
            Row(name, "why ?", None, "free-form", (), "red"), "why ?", ids_P, ids_P.expand(3, -1), ids_P < 0, "text"
        )
        for name in names
    ]


class SeededEngine:
    """Replies `name/call/number`, where calls are counted for each prompt; remembers who was asked when."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.seeds: list[int] = []

    def generate(self, prompts, num_completions, settings, seed, progress=False):
        self.asked.append([prompt.row.id for prompt in prompts])
        self.seeds.append(seed)
        return [
            [Completion((5, i), f"{p.row.id}/{self.times(p.row.id)}/{i}", None, False) for i in range(num_completions)]
            for p in prompts
        ]

    def times(self, name: str) -> int:
        return sum(name in call for call in self.asked)
