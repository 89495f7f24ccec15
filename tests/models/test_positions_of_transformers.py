"""Our positions against those of the installed transformers: where they agree, and where it departs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ktr.data.media import Frames
from ktr.data.rows import Row
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.loading import LoadedModel
from ktr.models.prompt_encoder import PromptEncoder


def transformers_positions(loaded: LoadedModel, prompt: EncodedPrompt) -> torch.Tensor:
    family = loaded.family
    ids = prompt.input_ids_P[None]
    types = torch.zeros_like(ids)
    types[ids == family.image_token_id] = 1
    types[ids == family.video_token_id] = 2
    grid = torch.tensor([prompt.grid_thw])
    arguments = {f"{prompt.modality}_grid_thw": grid}
    if family.name == "qwen2_5_vl" and prompt.modality == "video":
        arguments["second_per_grid_ts"] = torch.tensor([prompt.second_per_grid])
    positions, _ = loaded.model.model.get_rope_index(ids, mm_token_type_ids=types, **arguments)
    return positions[:, 0]


def test_images_agree(loaded: LoadedModel, encoder: PromptEncoder, new_row: Callable, new_frames: Callable) -> None:
    frames = new_frames(loaded.family.resize_factor, kind="image", grid=(3, 5))
    prompt = encoder.encode_frames(new_row("image"), frames)
    assert torch.equal(prompt.position_ids_3P, transformers_positions(loaded, prompt))


def test_videos_agree_for_qwen3_and_inside_the_span_for_all(
    loaded: LoadedModel, encoder: PromptEncoder, new_row: Callable, new_frames: Callable
) -> None:
    frames = new_frames(loaded.family.resize_factor, count=12, grid=(2, 3), step=7)
    prompt = encoder.encode_frames(new_row(), frames)
    theirs = transformers_positions(loaded, prompt)
    end = int(prompt.visual_mask_P.nonzero().max()) + 1
    assert torch.equal(prompt.position_ids_3P[:, :end], theirs[:, :end])
    if loaded.family.name == "qwen3_vl":
        assert torch.equal(prompt.position_ids_3P, theirs)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_transformers_numbers_text_before_the_end_of_a_long_video(
    family: str,
    loaded_models: dict[str, LoadedModel],
    new_encoder: Callable[..., PromptEncoder],
    new_row: Callable[..., Row],
    new_frames: Callable[..., Frames],
) -> None:
    """Fails once transformers goes on after the largest position: then the note in `positions` can go."""
    loaded = loaded_models[family]
    frames = new_frames(loaded.family.resize_factor, count=16, grid=(2, 3), step=20)
    prompt = new_encoder(loaded).encode_frames(new_row(), frames)
    theirs = transformers_positions(loaded, prompt)
    end = int(prompt.visual_mask_P.nonzero().max()) + 1
    last = int(prompt.position_ids_3P[:, :end].max())
    assert prompt.position_ids_3P[:, end].tolist() == [last + 1] * 3
    assert int(theirs[0, end]) < last
