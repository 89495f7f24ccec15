"""Attention of one new token a row to its cache, without copying the cache for grouped-query heads.

R rows, Q query heads, K key-value heads, S cached tokens, D head dimension.

transformers repeats keys and values to the number of query heads whenever a mask is given, which for small models
costs more than the attention itself. With a single query token the query heads of one key-value head can instead stand
in the place of query tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "ktr_decode"


def decode_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers: `query (R, Q, 1, D)`, `key` and `value (R, K, S, D)`, output
    `(R, 1, Q, D)`. Several query tokens, as in a prefill, go to transformers' own function."""
    rows, heads, queries, head_dim = query.shape
    if queries != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    grouped = query.view(rows, key.shape[1], heads // key.shape[1], head_dim)
    output = F.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(rows, 1, heads, head_dim), None


AttentionInterface.register(NAME, decode_attention_forward)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def decoding_attention(model: PreTrainedModel) -> Iterator[None]:
    """Uses `decode_attention_forward` in the language model inside the block, where it runs on `sdpa`."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before != "sdpa":
        yield
        return
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
