from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ktr.training.precision import lost_share, warn_of_lost_steps
from ktr.training.stages import _train


def weights(dtype: torch.dtype, *, frozen: bool = False) -> nn.Module:
    """Four weights; the spacing of bfloat16 at them is 2^-8, 2^-13, 2^-18 and 2^-23."""
    layer = nn.Linear(4, 1, bias=False)
    layer.weight.data = torch.tensor([[0.75, 0.75 * 2**-5, 0.75 * 2**-10, 0.75 * 2**-15]])
    return layer.to(dtype).requires_grad_(not frozen)


@pytest.mark.parametrize(("learning_rate", "share"), [(2**-7, 0.0), (2**-12, 0.25), (2**-17, 0.5), (2e-8, 1.0)])
def test_steps_below_half_a_spacing_are_lost(learning_rate: float, share: float) -> None:
    assert lost_share(weights(torch.bfloat16), learning_rate) == share
    assert lost_share(weights(torch.bfloat16, frozen=True), learning_rate) == 0.0
    before = weights(torch.bfloat16)
    after = weights(torch.bfloat16)
    after.weight.grad = torch.ones_like(after.weight)
    torch.optim.AdamW(after.parameters(), lr=learning_rate, weight_decay=0.0).step()
    assert float((after.weight == before.weight).float().mean()) == share


def test_a_run_is_warned_where_most_weights_would_stay(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_lost_steps(weights(torch.float32), 2e-6)
    warn_of_lost_steps(weights(torch.bfloat16), 2**-17)
    assert not caplog.records
    warn_of_lost_steps(weights(torch.bfloat16), 1e-6)
    (record,) = caplog.records
    assert "75 % of the trained weights" in record.getMessage() and "model.dtype=float32" in record.getMessage()


@pytest.mark.parametrize("keeps_float32", [False, True])
def test_a_stage_warns_unless_its_launcher_keeps_a_float32_copy(
    caplog: pytest.LogCaptureFixture, keeps_float32: bool
) -> None:
    trainer = SimpleNamespace(
        is_deepspeed_enabled=keeps_float32,
        is_fsdp_enabled=False,
        model=weights(torch.bfloat16),
        args=SimpleNamespace(learning_rate=1e-6),
        callback_handler=SimpleNamespace(callbacks=[]),
        remove_callback=lambda callback: None,
        train=lambda resume_from_checkpoint: None,
    )
    _train(trainer, None, SimpleNamespace(agreed=0))
    assert len(caplog.records) == (0 if keeps_float32 else 1)
