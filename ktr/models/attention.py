"""Attention of the language model that does no work its masks throw away, with the results of transformers' SDPA.

Two cases are ours, everything else goes to transformers. One new token a row against its cache: transformers repeats
keys and values to the number of query heads whenever a mask is given, which for small models costs more than the
attention itself. A packed row, whose completions see the prompt and themselves: under a dense mask most of the row's
square is computed for nothing.

R rows, L row tokens, P prompt tokens, G completions of a row, C tokens of the longest of them, Q query heads, K
key-value heads (Q = K x N), S cached tokens, D head dimension.
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

GROUP_SDPA = "group_sdpa"
PROMPT_SEGMENT = 0
PAD_SEGMENT = -1


def group_sdpa_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers: `query (R, Q, L, D)`, `key` and `value (R, K, S, D)`, output
    `(R, L, Q, D)`.

    A `torch.long` `attention_mask (R, 1, 1, L)` holds the segments of packed rows: 0 in the prompt, 1..G in the
    completions, -1 in the padding that may follow, in this order.
    """
    rows, heads, queries, head_dim = query.shape
    if attention_mask is not None and attention_mask.dtype == torch.long:
        segments_RL = attention_mask[:, 0, 0]
        outputs = [_packed_row(*parts, scaling) for parts in zip(query, key, value, segments_RL, strict=True)]
        return torch.stack(outputs), None
    if queries == 1:
        grouped = query.view(rows, key.shape[1], heads // key.shape[1], head_dim)
        output = F.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
        return output.reshape(rows, 1, heads, head_dim), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)


def _packed_row(
    query_QLD: torch.Tensor,
    key_KLD: torch.Tensor,
    value_KLD: torch.Tensor,
    segments_L: torch.Tensor,
    scale: float | None,
) -> torch.Tensor:
    """`(L, Q, D)`: the prompt's causal attention, then that of all completions at once; 0 in the padding."""
    heads, length, head_dim = query_QLD.shape
    kv_heads = len(key_KLD)
    sizes = torch.unique_consecutive(segments_L, return_counts=True)[1].tolist()
    padding = sizes.pop() if int(segments_L[-1]) == PAD_SEGMENT else 0
    prompt = sizes.pop(0) if int(segments_L[0]) == PROMPT_SEGMENT else 0
    longest = max(sizes)

    prompt_QPD = F.scaled_dot_product_attention(
        query_QLD[None, :, :prompt],
        key_KLD[None, :, :prompt],
        value_KLD[None, :, :prompt],
        is_causal=True,
        scale=scale,
        enable_gqa=heads != kv_heads,
    )[0]

    def segments(values_HLD: torch.Tensor) -> torch.Tensor:
        """`(G, H, C, D)`, zeros after the end of each completion, where no valid query looks."""
        pieces = values_HLD[:, prompt : length - padding].split(sizes, dim=1)
        return torch.stack([F.pad(piece, (0, 0, 0, longest - piece.shape[1])) for piece in pieces])

    def with_prompt(values_KLD: torch.Tensor) -> torch.Tensor:
        shared = values_KLD[:, :prompt].expand(len(sizes), -1, -1, -1)
        return torch.cat([shared, segments(values_KLD)], dim=2)

    # Query heads of one key-value head stand side by side as query tokens: keys need no copies for them.
    sees = torch.ones(longest, prompt + longest, dtype=torch.bool, device=query_QLD.device).tril(prompt)
    per_kv_head = heads // kv_heads
    grouped = segments(query_QLD).reshape(len(sizes), kv_heads, per_kv_head * longest, head_dim)
    output = F.scaled_dot_product_attention(
        grouped, with_prompt(key_KLD), with_prompt(value_KLD), attn_mask=sees.repeat(per_kv_head, 1), scale=scale
    ).reshape(len(sizes), heads, longest, head_dim)
    pieces = [output[g, :, :size] for g, size in enumerate(sizes)]
    return F.pad(torch.cat([prompt_QPD, *pieces], dim=1), (0, 0, 0, padding)).transpose(0, 1)


AttentionInterface.register(GROUP_SDPA, group_sdpa_forward)
AttentionMaskInterface.register(GROUP_SDPA, sdpa_mask)


def text_attention(model: PreTrainedModel) -> str:
    """The attention implementation of the language model; the vision tower has its own."""
    return str(model.config.get_text_config()._attn_implementation)


def set_text_attention(model: PreTrainedModel, implementation: str) -> None:
    model.config.get_text_config()._attn_implementation = implementation


@contextmanager
def decoding_attention(model: PreTrainedModel) -> Iterator[None]:
    """`group_sdpa` in place of `flex_attention`, which would need a block mask for every new token."""
    before = text_attention(model)
    if before == "flex_attention":
        set_text_attention(model, GROUP_SDPA)
    try:
        yield
    finally:
        set_text_attention(model, before)
