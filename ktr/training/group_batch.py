"""What goes through the trainer: prompts as the data loader gives them, and groups as the loss takes them.

Shapes: N completions of a micro-batch (whole groups of G), C tokens of the longest completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ktr.data.rows import Row
from ktr.data.worker_errors import carries_errors
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.prompt_encoder import PromptEncoder
from ktr.training.objective import LossDenominators
from ktr.training.scoring import ScoringGroup


@dataclass(eq=False)
class GroupBatch:
    """One pass of an optimizer step: whole groups with all that their loss needs beside the policy's own log-probs.

    Attributes:
        groups: those that carry loss; where none does, a short stand-in, so that there is a graph to differentiate and
            all ranks stay in step.
        carries_loss: False for such a stand-in: its loss is 0, and it is given no reference and no views.
        sampled_at: the step whose policy sampled the completions.
        weights_NC: of the completions' tokens, once `attributed` is true: after the policy's first pass over the batch,
            or before it where the loss needs all weights first.
        denominators: of the whole optimizer step.
    """

    groups: list[ScoringGroup]
    advantages_N: torch.Tensor
    carries_loss: bool
    sampled_at: int
    weights_NC: torch.Tensor
    attributed: bool = False
    ref_logps_NC: torch.Tensor | None = None
    old_logps_NC: torch.Tensor | None = None
    denominators: LossDenominators | None = None


class PromptCollator:
    """Encoded prompts of a generation batch, one a group; runs in the data loader's workers."""

    def __init__(self, encoder: PromptEncoder, rows: Sequence[Row], group_size: int) -> None:
        self.encoder = encoder
        self.rows = rows
        self.group_size = group_size

    @carries_errors
    def __call__(self, examples: Sequence[dict[str, Any]]) -> list[EncodedPrompt]:
        return [self.encoder.encode(self.rows[example["index"]]) for example in examples[:: self.group_size]]
