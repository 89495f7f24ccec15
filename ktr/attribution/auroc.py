"""Area under the ROC curve: how well a score tells the tokens that carry a signal from those that do not.

Shapes: N tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor


def auroc(scores_N: Tensor, labels_N: Tensor) -> float | None:
    """Probability that a random positive token scores above a random negative one, ties counting one half.

    Exact, by ranks (the Mann-Whitney statistic), in float64.

    Args:
        scores_N: finite scores.
        labels_N: True for tokens that carry the signal.

    Returns:
        A number in [0, 1], or None when one of the two classes is empty: there is no curve then.

    Raises:
        ValueError: when a score is not finite, because it has no rank.
    """
    assert scores_N.dim() == 1 and scores_N.shape == labels_N.shape, "one label for each score"
    if not bool(torch.isfinite(scores_N).all()):
        raise ValueError("a score is not finite and cannot be ranked")
    labels_N = labels_N.bool()
    num_positive = int(labels_N.sum())
    num_negative = labels_N.numel() - num_positive
    if num_positive == 0 or num_negative == 0:
        return None
    _, level_N = torch.unique(scores_N, return_inverse=True)
    positive_L = torch.bincount(level_N[labels_N], minlength=int(level_N.max()) + 1).double()
    negative_L = torch.bincount(level_N[~labels_N], minlength=len(positive_L)).double()
    negative_below_L = negative_L.cumsum(dim=0) - negative_L
    wins = (positive_L * (negative_below_L + negative_L / 2)).sum()
    return float(wins / (num_positive * num_negative))
