"""Drawing tokens from logits.

R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ktr.rollout.engine import SamplingSettings


class TokenSampler:
    """Draws one token a row by inverting the cumulative distribution at a given uniform number.

    A row's draw depends on its own logits and number alone, so the other rows of a batch do not change it.

    Args:
        settings: temperature, top-p and top-k, applied by transformers' processors in `generate`'s order.
        banned_ids: tokens that are never drawn.
        device: of the logits.
    """

    def __init__(self, settings: SamplingSettings, banned_ids: Sequence[int], device: torch.device | str) -> None:
        self.settings = settings
        self.banned_ids = torch.tensor(sorted(set(banned_ids)), dtype=torch.long, device=device)
        self.warpers = LogitsProcessorList()
        if settings.top_k > 0:
            self.warpers.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            self.warpers.append(TopPLogitsWarper(settings.top_p))
        self.warm = LogitsProcessorList()
        if not settings.greedy and settings.temperature != 1:
            self.warm.append(TemperatureLogitsWarper(settings.temperature))

    def draw(self, logits_RV: torch.Tensor, uniform_R: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens `(R,)` and their log-probs `(R,)` at the temperature over the whole vocabulary.

        Args:
            logits_RV: of the next token.
            uniform_R: float64 numbers in [0, 1); None for greedy.
        """
        no_ids = logits_RV.new_empty(0, dtype=torch.long)
        logits_RV = self.warm(no_ids, logits_RV.float())
        allowed_RV = logits_RV.index_fill(1, self.banned_ids, -torch.inf)
        if self.settings.greedy:
            tokens_R = allowed_RV.argmax(-1)
        else:
            assert uniform_R is not None
            probs_RV = self.warpers(no_ids, allowed_RV).softmax(-1)
            cumulative_RV = probs_RV.cumsum(-1, dtype=torch.float64)
            below_R = uniform_R.clamp(max=1 - 1e-12) * cumulative_RV[:, -1]
            tokens_R = torch.searchsorted(cumulative_RV, below_R[:, None], right=True)[:, 0]
        logps_R = logits_RV.gather(1, tokens_R[:, None])[:, 0] - logits_RV.logsumexp(-1)
        return tokens_R, logps_R
