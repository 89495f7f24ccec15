"""The language model's attention equals transformers' SDPA, on single new tokens and on packed rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ktr.models.attention import GROUP_SDPA, group_sdpa_forward, use_group_sdpa
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


def test_only_the_language_model_uses_it_and_other_implementations_are_left_alone(
    loaded: LoadedModel, checkpoints: dict[str, Path]
) -> None:
    text, vision = loaded.model.config.get_text_config(), loaded.model.config.vision_config
    assert loaded.model.model.language_model.layers[0].self_attn.config._attn_implementation == GROUP_SDPA
    assert text._attn_implementation == GROUP_SDPA
    assert vision._attn_implementation == loaded.model.config._attn_implementation == "sdpa"
    eager = load_model(checkpoints["qwen2_5_vl"], attn_implementation="eager").model
    use_group_sdpa(eager)
    assert eager.config.get_text_config()._attn_implementation == "eager"
