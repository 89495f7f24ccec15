"""On a GPU: packed rows under every attention give the scores and gradients that the CPU gives."""

from __future__ import annotations

import pytest
import torch
from small_models import FAMILIES, load_scored, make_encoder, make_groups

from ktr.models.attention import set_text_attention
from ktr.training.scoring import GroupScorer, TokenScores, valid_tokens

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("attention", ["group_sdpa", "sdpa", "flex_attention"])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_and_gradients_are_those_of_the_cpu(checkpoints, family, attention, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)

    def step(device: str, implementation: str) -> tuple[TokenScores, dict[str, torch.Tensor]]:
        loaded = load_scored(checkpoints[family], device=device)
        set_text_attention(loaded.model, implementation)
        encoder = make_encoder(loaded)
        groups = make_groups(encoder)
        scorer = GroupScorer(encoder.family, pad_token_id=0, max_packed_tokens=100_000)
        scores = scorer.score(loaded.model, groups)
        weights_NC = torch.rand(valid_tokens(groups).shape, generator=torch.Generator().manual_seed(0))
        (scores.logps_NC * weights_NC.to(device)).sum().backward()
        return scores, {n: p.grad.cpu() for n, p in loaded.model.named_parameters() if p.grad is not None}

    expected, gradients = step("cpu", "group_sdpa")
    found, found_gradients = step("cuda", attention)
    torch.testing.assert_close(found.logps_NC.detach().cpu(), expected.logps_NC.detach(), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.entropy_NC.cpu(), expected.entropy_NC, atol=1e-4, rtol=0)
    assert found_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        scale = max(float(gradient.abs().max()), 1e-3)
        assert float((found_gradients[name] - gradient).abs().max()) <= 1e-3 * scale, name
