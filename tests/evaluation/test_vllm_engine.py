"""vLLM gives the greedy replies of transformers: the same prompts, frames, positions and weights."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest
from small_models import FAMILIES, SMALL, make_encoder, make_prompt, random_frames

from ktr.data.rows import Media, Row
from ktr.evaluation.vllm_engine import VllmEngine, vllm_prompt
from ktr.models.loading import load_model
from ktr.models.toy_model import build_toy_checkpoint
from ktr.rollout.engine import SamplingSettings
from ktr.rollout.transformers_engine import TransformersRollout

HAS_VLLM = importlib.util.find_spec("vllm") is not None


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    build_toy_checkpoint(path, family="qwen2_5_vl", seed=0, initializer_range=0.3, max_length=1024, size=SMALL)
    return path


@pytest.mark.vllm
@pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed")
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_replies_equal_those_of_transformers(tmp_path, family):
    """The processors of the small Qwen3-VL normalise images and videos by different means."""
    checkpoint = tmp_path / family
    build_toy_checkpoint(checkpoint, family=family, seed=0, initializer_range=0.3, max_length=1024, size=SMALL)
    loaded = load_model(checkpoint)
    encoder = make_encoder(loaded)
    prompts = [make_prompt(encoder, kind, seed) for seed, kind in enumerate(("video", "text", "video", "image"))]
    prompts.append(uneven_video(encoder))
    settings = SamplingSettings(12, 0.0)
    tokenizer = loaded.processor.tokenizer
    expected = TransformersRollout(loaded.model, tokenizer, loaded.family).generate(prompts, 1, settings, 0)
    engine = VllmEngine(
        str(checkpoint), family=loaded.family, tokenizer=tokenizer, dtype="float32", max_model_len=1024,
        enforce_eager=True, kv_cache_memory_bytes=64 << 20,
    )  # fmt: skip
    found = engine.generate(prompts, 1, settings, 0)
    assert [group[0].token_ids for group in found] == [group[0].token_ids for group in expected]


def test_a_timestamped_prompt_carries_the_times_of_its_frames(tmp_path):
    build_toy_checkpoint(tmp_path, family="qwen3_vl", seed=0, max_length=1024, size=SMALL)
    prompt = uneven_video(make_encoder(load_model(tmp_path)))
    ((_, metadata),) = vllm_prompt(prompt, timestamps=True)["multi_modal_data"]["video"]
    assert metadata["fps"] == 1.0 and metadata["frames_indices"] == [0.0, 0.3, 0.5, 7.25]


def uneven_video(encoder):
    """A prompt with four frames of a clip whose frame rate changes."""
    frames = random_frames("video", 4, encoder.family.resize_factor, 9)
    frames = dataclasses.replace(frames, times=(0.0, 0.3, 0.5, 7.25), fps=29.97, second_per_grid=2.4)
    row = Row("uneven", "what moved first ?", Media("video", "uneven.mp4"), "free-form", (), "red")
    return encoder.encode_frames(row, frames)


def test_a_prompt_carries_its_frames_and_their_rate(checkpoint):
    encoder = make_encoder(load_model(checkpoint))
    prompt = make_prompt(encoder, "video", 1, num_frames=4)
    request = vllm_prompt(prompt)
    ((pixels_THW3, metadata),) = request["multi_modal_data"]["video"]
    expected = random_frames("video", 4, encoder.family.resize_factor, 1).pixels_T3HW.permute(0, 2, 3, 1)
    assert (pixels_THW3 == expected.numpy()).all()
    assert metadata["do_sample_frames"] is False
    rate = len(metadata["frames_indices"]) / metadata["total_num_frames"] * metadata["fps"]
    assert 2.0 / rate == pytest.approx(prompt.second_per_grid)
    assert "<|video_pad|>" in request["prompt"]
    assert vllm_prompt(make_prompt(encoder, "text", 2)).keys() == {"prompt"}


@pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed")
def test_without_vllm_the_remedy_is_named(checkpoint):
    loaded = load_model(checkpoint)
    with pytest.raises(ValueError, match="pip install"):
        VllmEngine(str(checkpoint), family=loaded.family, tokenizer=loaded.processor.tokenizer)
