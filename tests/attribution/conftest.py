"""Shapes: G completions, C completion tokens."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def valid_of():
    """Build a right-padded (G, C) mask from completion lengths."""

    def build(lengths: list[int], width: int | None = None) -> torch.Tensor:
        width = max(lengths) if width is None else width
        return torch.arange(width).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)

    return build
