"""Which tokens are key tokens: the top share of each completion, or those above one quantile of the group.

Shapes: G completions of one prompt, C completion tokens (right padded).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from ktr.attribution.settings import COMBINES, SCOPES


def num_selected(ratio: float, num_valid: int) -> int:
    """``ceil(ratio * num_valid)`` of the ratio as it is written in decimal.

    The product of two floats can land just above a whole number and keep one token too many: in float32 already
    0.2 of 15, in float64 0.07 of 100. The shortest decimal that names the float is what its user wrote, so the product
    is taken of that, as a fraction.

    Args:
        ratio: share in [0, 1].
        num_valid: tokens it is a share of.
    """
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"top_k must lie between 0 and 1; got {ratio}")
    return math.ceil(_exact(ratio) * num_valid)


def select_top(scores_GC: Tensor, valid_GC: Tensor, ratio: float) -> Tensor:
    """The ``ceil(ratio * n_valid)`` highest scores of each completion: exactly that many, ties to the earlier token.

    A completion whose valid scores are all zero selects none, and so does one without valid tokens.
    Source: Video-KTR (arXiv 2601.19686), token selection.

    Args:
        scores_GC: finite scores on valid tokens.
        valid_GC: True up to and including the first end token.
        ratio: share of a completion's valid tokens, in [0, 1].

    Returns:
        bool (G, C).
    """
    valid_GC = valid_GC.bool()
    counts_G = [num_selected(ratio, num_valid) for num_valid in valid_GC.sum(dim=1).tolist()]
    ranked_GC = scores_GC.masked_fill(~valid_GC, -math.inf)
    order_GC = ranked_GC.argsort(dim=1, descending=True, stable=True)
    rank_GC = torch.empty_like(order_GC).scatter_(
        1, order_GC, torch.arange(order_GC.shape[1], device=order_GC.device).expand_as(order_GC)
    )
    counts_G1 = torch.tensor(counts_G, device=scores_GC.device).unsqueeze(1)
    some_G1 = ((scores_GC != 0) & valid_GC).any(dim=1, keepdim=True)
    return (rank_GC < counts_G1) & some_G1


def select_quantile(scores_GC: Tensor, valid_GC: Tensor, ratio: float) -> Tensor:
    """Tokens at or above the ``1 - ratio`` quantile of ALL valid scores of the group.

    This is the rule of Video-KTR's released code. Ties at the threshold are all kept, and a completion may keep none.
    Unlike there, a group whose scores are all zero selects none instead of everything. The quantile interpolates
    linearly between neighbours, in float64.

    Args:
        scores_GC: finite scores on valid tokens.
        valid_GC: True up to and including the first end token.
        ratio: share in (0, 1].

    Returns:
        bool (G, C).
    """
    if not 0.0 < ratio <= 1.0:
        raise ValueError(f"top_k must be above 0 and at most 1; got {ratio}")
    valid_GC = valid_GC.bool()
    pooled_N = scores_GC[valid_GC].double().sort().values
    if pooled_N.numel() == 0 or not bool((pooled_N != 0).any()):
        return torch.zeros_like(valid_GC)
    position = (1 - _exact(ratio)) * (pooled_N.numel() - 1)
    below = math.floor(position)
    above = min(below + 1, pooled_N.numel() - 1)
    threshold = pooled_N[below] + float(position - below) * (pooled_N[above] - pooled_N[below])
    return (scores_GC.double() >= threshold) & valid_GC


def select(scores_GC: Tensor, valid_GC: Tensor, ratio: float, scope: str = "completion") -> Tensor:
    """`select_top` within each ``completion``, or `select_quantile` over the ``group``; bool (G, C)."""
    if scope not in SCOPES:
        raise ValueError(f"scope must be one of {', '.join(SCOPES)}; got {scope!r}")
    chosen = select_top if scope == "completion" else select_quantile
    return chosen(scores_GC, valid_GC, ratio)


def combine_selections(selections: Sequence[Tensor], combine: str = "union") -> Tensor:
    """Key tokens of several signals' selections, each bool (G, C): their ``union`` or ``intersection``."""
    if combine not in COMBINES:
        raise ValueError(f"combine must be one of {', '.join(COMBINES)}; got {combine!r}")
    assert selections, "no selection to combine"
    stacked_SGC = torch.stack(list(selections))
    return stacked_SGC.any(dim=0) if combine == "union" else stacked_SGC.all(dim=0)


def _exact(ratio: float) -> Fraction:
    return Fraction(repr(float(ratio)))
