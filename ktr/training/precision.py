"""Whether steps of the learning rate's size change weights of the precision they are kept in."""

from __future__ import annotations

import logging

import torch
from torch import nn

logger = logging.getLogger(__name__)

MOST_LOST = 0.5


@torch.no_grad()
def lost_share(model: nn.Module, learning_rate: float) -> float:
    """Share of the trained weights that a step of `learning_rate` leaves as they are, because it is rounded away.

    Adam moves a weight by about the learning rate, whatever its gradient. bfloat16 holds 8 significant bits: a step of
    2e-6 is lost on every weight above 1e-3. 0 where nothing is trained.
    """
    lost, weights = 0, 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            lost += int((parameter - learning_rate == parameter).sum())
            weights += parameter.numel()
    return lost / max(weights, 1)


def warn_of_lost_steps(model: nn.Module, learning_rate: float) -> None:
    """Warns where most weights cannot take the steps they are given."""
    share = lost_share(model, learning_rate)
    if share > MOST_LOST:
        logger.warning(
            "%.0f %% of the trained weights are too coarse for steps of learning_rate=%g and will not move: load them "
            "with model.dtype=float32 (and bf16=true, which still computes in bfloat16), or train adapters with "
            "model.lora.rank",
            100 * share,
            learning_rate,
        )
