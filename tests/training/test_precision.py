from __future__ import annotations

import pytest
import torch
from torch import nn

from ktr.training.precision import lost_share, warn_of_lost_steps


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
