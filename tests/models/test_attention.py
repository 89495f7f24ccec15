"""The language model's attention equals transformers' SDPA, on single new tokens and on packed rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ktr.models.attention import (
    GROUP_SDPA,
    decoding_attention,
    group_sdpa_forward,
    set_text_attention,
    text_attention,
)
from ktr.models.loading import LoadedModel, load_model
from ktr.training.packing import group_mask


def make_module() -> nn.Module:
    module = nn.Module()
    module.num_key_value_groups, module.is_causal = 3, True
    return module


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries", [1, 5])
def test_equals_transformers_attention_with_grouped_heads(queries: int, masked: bool) -> None:
    torch.manual_seed(0)
    query = torch.randn(4, 6, queries, 8)
    key, value = torch.randn(2, 4, 2, 9, 8).unbind()
    mask = torch.rand(4, 1, queries, 9) > 0.3 if masked else None
    if masked:
        mask[..., -1] = True
    ours, _ = group_sdpa_forward(make_module(), query, key, value, mask, scaling=0.4)
    theirs, _ = sdpa_attention_forward(make_module(), query, key, value, mask, scaling=0.4)
    torch.testing.assert_close(ours, theirs)


ROWS = {
    "uneven, padded": [[0] * 5 + [1] * 3 + [2] + [3] * 4, [0] * 2 + [1] * 7 + [-1] * 4],
    "even": [[0] * 3 + [1, 1, 2, 2], [0] * 3 + [1, 1, 2, 2]],
    "prompt of one token, which opens the segments": [[1, 1, 1, 2, 2], [1, 2, 2, 2, 2]],
    "completions of one token": [[0, 0, 1, 2, 3]],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_packed_rows_and_their_gradients_equal_the_dense_mask(rows: list[list[int]]) -> None:
    torch.manual_seed(0)
    segments = torch.tensor(rows)
    query = torch.randn(len(rows), 6, len(rows[0]), 8, requires_grad=True)
    key, value = (torch.randn(len(rows), 2, len(rows[0]), 8, requires_grad=True) for _ in range(2))
    told = torch.randn(len(rows), len(rows[0]), 6, 8) * (segments >= 0)[..., None, None]
    found = []
    for mask in (segments[:, None, None], group_mask(segments)):
        output, _ = group_sdpa_forward(make_module(), query, key, value, mask, scaling=0.4)
        kept = output[segments >= 0]
        found.append((kept, *torch.autograd.grad((output * told).sum(), [query, key, value])))
    for ours, dense in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense, atol=2e-6, rtol=0)


def test_packed_rows_compute_little_but_the_pairs_that_see_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = []

    def counted(query: torch.Tensor, key: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        pairs.append(query[..., 0].numel() * key.shape[-2])
        return attend(query, key, *args, **options)

    attend = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    prompt, completion, group, heads = 64, 16, 8, 6
    segments = torch.tensor([[0] * prompt + [g + 1 for g in range(group) for _ in range(completion)]])
    length = segments.shape[1]
    key, value = torch.randn(2, 1, 2, length, 8).unbind()
    group_sdpa_forward(make_module(), torch.randn(1, heads, length, 8), key, value, segments[:, None, None])
    assert sum(pairs) == heads * (prompt**2 + group * completion * (prompt + completion)) < 0.4 * heads * length**2


def test_the_language_model_alone_uses_it(loaded: LoadedModel) -> None:
    assert loaded.model.model.language_model.layers[0].self_attn.config._attn_implementation == GROUP_SDPA
    assert text_attention(loaded.model) == GROUP_SDPA
    vision = loaded.model.config.vision_config
    assert vision._attn_implementation == loaded.model.config._attn_implementation == "sdpa"


def test_other_implementations_are_left_alone(checkpoints: dict[str, Path]) -> None:
    eager = load_model(checkpoints["qwen2_5_vl"], attn_implementation="eager").model
    assert text_attention(eager) == "eager"
    with decoding_attention(eager):
        assert text_attention(eager) == "eager"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_flex_attention_is_refused_where_it_cannot_learn(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="model.attn_implementation=flex_attention learns on CUDA only"):
        load_model(checkpoints["qwen2_5_vl"], attn_implementation="flex_attention")


def test_decoding_takes_the_place_of_flex_attention_inside_the_block(loaded: LoadedModel) -> None:
    set_text_attention(loaded.model, "flex_attention")
    with pytest.raises(RuntimeError, match="stop"), decoding_attention(loaded.model):
        assert text_attention(loaded.model) == GROUP_SDPA
        raise RuntimeError("stop")
    assert text_attention(loaded.model) == "flex_attention"
    set_text_attention(loaded.model, GROUP_SDPA)
