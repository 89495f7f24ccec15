"""Blank media, for forwards whose rows lack a kind of media that the rows of another rank have.

Under ZeRO-3 and FSDP every module's weights are gathered by all ranks together, so all must run the vision tower as
often: a rank with a video, beside one with text, would wait for ever. A forward runs the tower once over its images and
once over its videos. Here it is given one blank visual token of each kind that it lacks, past the end of a row. No
other token sees it and it has no label, so that all it adds to loss and gradients is zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ktr.models.families import MEDIA_INPUTS, Family

NUM_CHANNELS = 3


@dataclass(frozen=True)
class BlankMedia:
    """Placeholders to put past the end of a batch's first row, and the vision inputs that they stand for."""

    token_ids: tuple[int, ...]
    inputs: dict[str, torch.Tensor]


NO_MEDIA = BlankMedia((), {})


def blank_media(family: Family, given: Mapping[str, object]) -> BlankMedia:
    """One blank token of each kind of media that the forward's arguments `given` lack."""
    patches = family.merge_size**2
    values = NUM_CHANNELS * family.temporal_patch_size * family.patch_size**2
    token_ids: list[int] = []
    inputs: dict[str, torch.Tensor] = {}
    for kind, pixels_key, grid_key in MEDIA_INPUTS:
        if pixels_key in given:
            continue
        token_ids.append(family.placeholder_id(kind))
        inputs[pixels_key] = torch.zeros(patches, values)
        inputs[grid_key] = torch.tensor([[1, family.merge_size, family.merge_size]])
    return BlankMedia(tuple(token_ids), inputs)
