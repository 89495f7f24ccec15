"""Scores of completion tokens: how much each one hangs on uncertainty, on the video, on the order of its frames.

Shapes: G completions of one prompt, C completion tokens (right padded), K shuffles.

All inputs are teacher-forced on the SAME sampled completions with the SAME position ids, natural logarithms (nats) in
float32 or wider: a difference of two log-probs rounded to bfloat16 is mostly rounding. Source: Video-KTR (arXiv
2601.19686), the three attribution signals; signed differences are those of its released code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ktr.attribution.settings import DELTAS


def entropy_score(entropies_GC: Tensor, valid_GC: Tensor) -> Tensor:
    """Entropy of the next-token distribution over the whole vocabulary.

    Args:
        entropies_GC: entropies in nats, at the sampling temperature.
        valid_GC: True up to and including the first end token.

    Returns:
        float (G, C), 0 outside `valid_GC`.
    """
    _check(entropies_GC, valid_GC)
    return _only_valid(entropies_GC.detach(), valid_GC)


def visual_score(full_GC: Tensor, blind_GC: Tensor, valid_GC: Tensor, delta: str = "absolute") -> Tensor:
    """Change of each token's log-prob when the video is taken away.

    Args:
        full_GC: log-probs with the video.
        blind_GC: log-probs of the same tokens without it.
        valid_GC: True up to and including the first end token.
        delta: ``absolute`` for ``|full - blind|``, ``signed`` for ``full - blind``.

    Returns:
        float (G, C), 0 outside `valid_GC`.
    """
    _check(blind_GC, valid_GC)
    return _only_valid(_difference(full_GC, blind_GC, valid_GC, delta), valid_GC)


def temporal_score(full_GC: Tensor, shuffled_KGC: Tensor, valid_GC: Tensor, delta: str = "absolute") -> Tensor:
    """Change of each token's log-prob when the frames change places, averaged over K shuffles.

    The mean is taken over the K differences (each absolute under ``absolute``), not over the K log-probs: shuffles
    that push a token in opposite directions do not cancel.

    Args:
        full_GC: log-probs with the frames in order.
        shuffled_KGC: log-probs of the same tokens under each shuffle, K >= 1.
        valid_GC: True up to and including the first end token.
        delta: ``absolute`` or ``signed`` (in order minus shuffled).

    Returns:
        float (G, C), 0 outside `valid_GC`.
    """
    assert shuffled_KGC.dim() == 3 and shuffled_KGC.shape[0] >= 1, "one (G, C) slice for each shuffle"
    _check(shuffled_KGC[0], valid_GC)
    return _only_valid(_difference(full_GC, shuffled_KGC, valid_GC, delta).mean(dim=0), valid_GC)


def _difference(full_GC: Tensor, counterfactual: Tensor, valid_GC: Tensor, delta: str) -> Tensor:
    if delta not in DELTAS:
        raise ValueError(f"delta must be one of {', '.join(DELTAS)}; got {delta!r}")
    _check(full_GC, valid_GC)
    difference = full_GC.detach() - counterfactual.detach()
    return difference.abs() if delta == "absolute" else difference


def _only_valid(score_GC: Tensor, valid_GC: Tensor) -> Tensor:
    # where, not a product: padding may hold inf or nan
    return torch.where(valid_GC.bool(), score_GC, 0.0)


def _check(values_GC: Tensor, valid_GC: Tensor) -> None:
    assert values_GC.dtype in (torch.float32, torch.float64), f"scores need float32 log-probs, got {values_GC.dtype}"
    assert values_GC.shape == valid_GC.shape, f"shapes differ: {tuple(values_GC.shape)}, {tuple(valid_GC.shape)}"
