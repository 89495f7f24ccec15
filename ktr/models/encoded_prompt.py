"""A prompt as tensors: what encoding hands to sampling, scoring and evaluation.

P prompt tokens; N visual patches, D values of a patch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ktr.data.media import Frames
from ktr.data.rows import Row


@dataclass(frozen=True, eq=False)
class EncodedPrompt:
    """A prompt ready for the model.

    Args:
        row: where it came from.
        text: chat text with one unexpanded placeholder, as an engine with its own processor wants it.
        input_ids_P: tokens, placeholders expanded.
        position_ids_3P: time, height and width positions under the family's rule.
        visual_mask_P: True at placeholder tokens.
        modality: `video`, `image` or `text`.
        pixel_values_ND: normalised patches, None for text.
        grid_thw: patches along time, height and width.
        second_per_grid: seconds a temporal grid covers, None for images and text.
        frames: what the patches were cut from, None for text and where patches changed places.
    """

    row: Row
    text: str
    input_ids_P: torch.Tensor
    position_ids_3P: torch.Tensor
    visual_mask_P: torch.Tensor
    modality: str
    pixel_values_ND: torch.Tensor | None = None
    grid_thw: tuple[int, int, int] | None = None
    second_per_grid: float | None = None
    frames: Frames | None = None

    def __len__(self) -> int:
        return len(self.input_ids_P)

    @property
    def next_position(self) -> int:
        """Position of the first completion token, the same on all three axes."""
        return int(self.position_ids_3P.max()) + 1
