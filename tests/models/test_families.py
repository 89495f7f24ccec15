from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig

from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.families import (
    VisionFeatures,
    family_of,
    permute_patches,
    permute_pixel_patches,
    unwrap_model,
    zero_features,
)
from ktr.models.loading import LoadedModel
from ktr.models.lora import lora_config
from ktr.models.prompt_encoder import PromptEncoder

ORDER = (2, 0, 3, 1)


@pytest.fixture
def prompts(encoder: PromptEncoder, new_row: Callable, new_frames: Callable) -> list[EncodedPrompt]:
    """Video, text, image, video of another size, image: every kind, mixed."""
    factor = encoder.family.resize_factor
    return [
        encoder.encode_frames(new_row(), new_frames(factor)),
        encoder.encode_frames(new_row(None), None),
        encoder.encode_frames(new_row("image"), new_frames(factor, kind="image", grid=(2, 3), seed=1)),
        encoder.encode_frames(new_row(), new_frames(factor, count=4, grid=(5, 2), seed=2)),
        encoder.encode_frames(new_row("image"), new_frames(factor, kind="image", grid=(1, 1), seed=3)),
    ]


def forward_logits(loaded: LoadedModel, prompts: list[EncodedPrompt], **vision: object) -> torch.Tensor:
    """Logits `(B, P, V)` of right-padded prompts, zero in the padding."""
    ids = torch.nn.utils.rnn.pad_sequence([prompt.input_ids_P for prompt in prompts], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(prompt.input_ids_P) for prompt in prompts], True)
    positions = torch.nn.utils.rnn.pad_sequence([prompt.position_ids_3P.T for prompt in prompts], True)
    with torch.no_grad():
        output = loaded.model(
            input_ids=ids, attention_mask=mask, position_ids=positions.permute(2, 0, 1), use_cache=False, **vision
        )
    return output.logits * mask[..., None]


def test_facts_come_from_the_config(loaded: LoadedModel) -> None:
    family, tokenizer = loaded.family, loaded.processor.tokenizer
    names = tokenizer.convert_ids_to_tokens(list(family.placeholder_ids))
    assert names == ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    assert family.resize_factor == (32 if family.name == "qwen3_vl" else 28)
    assert family.max_positions == 4096


def test_other_model_types_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'llama' is not supported; supported are: qwen2_vl, qwen2_5_vl, qwen3_vl"):
        family_of(LlamaConfig())


def test_forward_inputs_keep_images_and_videos_apart_in_row_order(
    loaded: LoadedModel, prompts: list[EncodedPrompt]
) -> None:
    inputs = loaded.family.forward_inputs(prompts)
    assert inputs["video_grid_thw"].tolist() == [list(prompts[0].grid_thw), list(prompts[3].grid_thw)]
    assert torch.equal(inputs["pixel_values"], torch.cat([prompts[2].pixel_values_ND, prompts[4].pixel_values_ND]))
    assert loaded.family.forward_inputs([prompts[1]]) == {}


def test_encoded_features_equal_pixels_in_a_mixed_batch(loaded: LoadedModel, prompts: list[EncodedPrompt]) -> None:
    family = loaded.family
    from_pixels = forward_logits(loaded, prompts, **family.forward_inputs(prompts))
    with torch.no_grad():
        features = family.encode_vision(loaded.model, prompts)
    assert features[1] is None
    assert bool(features[0].deepstack) == (family.name == "qwen3_vl")
    encoded = family.mm_encoder_outputs(features, prompts)
    assert torch.equal(forward_logits(loaded, prompts, mm_encoder_outputs=encoded), from_pixels)


@pytest.mark.parametrize("rows", [[0, 3], [2, 4], [1]])
def test_encoded_features_equal_pixels_for_one_kind(
    loaded: LoadedModel, prompts: list[EncodedPrompt], rows: list[int]
) -> None:
    family, batch = loaded.family, [prompts[row] for row in rows]
    from_pixels = forward_logits(loaded, batch, **family.forward_inputs(batch))
    encoded = family.mm_encoder_outputs(family.encode_vision(loaded.model, batch), batch)
    assert torch.equal(forward_logits(loaded, batch, mm_encoder_outputs=encoded), from_pixels)


def test_permuted_features_are_the_permuted_videos_features_bit_for_bit(
    loaded: LoadedModel, prompts: list[EncodedPrompt]
) -> None:
    family, video = loaded.family, prompts[0]
    permuted_video = permute_pixel_patches(video, ORDER)
    assert not torch.equal(permuted_video.pixel_values_ND, video.pixel_values_ND)
    assert torch.equal(permuted_video.position_ids_3P, video.position_ids_3P)
    with torch.no_grad():
        (features,) = family.encode_vision(loaded.model, [video])
        (expected,) = family.encode_vision(loaded.model, [permuted_video])
    permuted = permute_patches(features, video.grid_thw, ORDER)
    assert torch.equal(permuted.pooled_MH, expected.pooled_MH)
    assert len(permuted.deepstack) == len(expected.deepstack)
    for ours, theirs in zip(permuted.deepstack, expected.deepstack, strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(permuted.pooled_MH, features.pooled_MH)


def test_patch_order_is_frame_order_by_whole_patches(encoder: PromptEncoder, prompts: list[EncodedPrompt]) -> None:
    by_frames = encoder.with_frame_order(prompts[0], [2 * grid + frame for grid in ORDER for frame in range(2)])
    by_patches = permute_pixel_patches(prompts[0], ORDER)
    assert torch.equal(by_frames.pixel_values_ND, by_patches.pixel_values_ND)


def test_deepstack_features_reach_the_model(
    loaded_models: dict[str, LoadedModel], new_encoder: Callable, new_row: Callable, new_frames: Callable
) -> None:
    loaded = loaded_models["qwen3_vl"]
    prompt = new_encoder(loaded).encode_frames(new_row(), new_frames(32))
    (features,) = loaded.family.encode_vision(loaded.model, [prompt])
    shallow = VisionFeatures(features.pooled_MH, tuple(torch.zeros_like(layer) for layer in features.deepstack))
    logits = [
        forward_logits(loaded, [prompt], mm_encoder_outputs=loaded.family.mm_encoder_outputs([f], [prompt]))
        for f in (features, shallow)
    ]
    assert (logits[0] - logits[1]).abs().max() > 1e-3


def test_zero_features_hide_the_video(loaded: LoadedModel, prompts: list[EncodedPrompt]) -> None:
    family = loaded.family
    logits = []
    for prompt in (prompts[0], permute_pixel_patches(prompts[0], ORDER)):
        (features,) = family.encode_vision(loaded.model, [prompt])
        zeros = family.mm_encoder_outputs([zero_features(features)], [prompt])
        assert all(not layer.any() for layer in (zero_features(features).pooled_MH, *zero_features(features).deepstack))
        logits.append(forward_logits(loaded, [prompt], mm_encoder_outputs=zeros))
    assert torch.equal(*logits)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 1, 2, 2), (1, 2, 3, 4)])
def test_orders_that_are_no_permutation_are_refused(prompts: list[EncodedPrompt], order: tuple[int, ...]) -> None:
    features = VisionFeatures(torch.zeros(4 * 12, 8))
    with pytest.raises(ValueError, match="permutation of 0..3"):
        permute_patches(features, (4, 6, 8), order)
    with pytest.raises(ValueError, match="permutation of 0..3"):
        permute_pixel_patches(prompts[0], order)
    with pytest.raises(ValueError, match="no image or video"):
        permute_pixel_patches(prompts[1], order)


def test_encoding_runs_through_adapters_and_wrappers(
    loaded_models: dict[str, LoadedModel],
    checkpoints: dict,
    new_encoder: Callable,
    new_row: Callable,
    new_frames: Callable,
) -> None:
    from peft import get_peft_model

    from ktr.models.loading import load_model

    plain = loaded_models["qwen2_5_vl"]
    loaded = load_model(checkpoints["qwen2_5_vl"])
    prompt = new_encoder(loaded).encode_frames(new_row(), new_frames(28))
    wrapped = get_peft_model(loaded.model, lora_config(rank=2))
    assert unwrap_model(wrapped) is loaded.model
    (features,) = loaded.family.encode_vision(wrapped, [prompt])
    (expected,) = plain.family.encode_vision(plain.model, [prompt])
    assert torch.equal(features.pooled_MH, expected.pooled_MH)
