from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ktr.models.loading import LoadedModel
from ktr.rollout.decode_attention import NAME, decode_attention_forward, decoding_attention


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries", [1, 5])
def test_equals_transformers_attention_with_grouped_heads(queries: int, masked: bool) -> None:
    torch.manual_seed(0)
    module = nn.Module()
    module.num_key_value_groups, module.is_causal = 3, True
    query = torch.randn(4, 6, queries, 8)
    key, value = torch.randn(2, 4, 2, 9, 8).unbind()
    mask = torch.rand(4, 1, queries, 9) > 0.3 if masked else None
    if masked:
        mask[..., -1] = True
    ours, _ = decode_attention_forward(module, query, key, value, mask, scaling=0.4)
    theirs, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.4)
    torch.testing.assert_close(ours, theirs)


def test_only_the_language_model_uses_it_and_only_inside(loaded: LoadedModel) -> None:
    text, vision = loaded.model.config.get_text_config(), loaded.model.config.vision_config
    with pytest.raises(RuntimeError, match="stop"), decoding_attention(loaded.model):
        assert loaded.model.model.language_model.layers[0].self_attn.config._attn_implementation == NAME
        assert vision._attn_implementation == "sdpa"
        raise RuntimeError("stop")
    assert text._attn_implementation == vision._attn_implementation == "sdpa"


def test_other_implementations_are_left_alone(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    text = loaded.model.config.get_text_config()
    monkeypatch.setattr(text, "_attn_implementation", "eager")
    with decoding_attention(loaded.model):
        assert text._attn_implementation == "eager"
