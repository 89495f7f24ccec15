"""Small real checkpoints of the three Qwen-VL families, for the toy world and for tests.

A toy checkpoint holds what a released one holds (config, weights, tokenizer, image and video processor, chat template)
and is loaded by the same ``from_pretrained`` calls. Its weights are random.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from ktr.models.toy_tokenizer import (
    END_OF_TEXT,
    IMAGE_PAD,
    TURN_END,
    VIDEO_PAD,
    VISION_END,
    VISION_START,
    build_toy_tokenizer,
)

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
MERGE_SIZE = 2
TEMPORAL_PATCH_SIZE = 2
SPACE = "\u0120"
"""How a byte-level vocabulary writes a space."""


@dataclass(frozen=True)
class ToySize:
    """Widths and depths of a toy checkpoint. The head dimension is 32, the least that vLLM's kernels take."""

    hidden_size: int = 128
    intermediate_size: int = 384
    num_layers: int = 4
    num_kv_heads: int = 2
    vision_hidden_size: int = 64
    vision_intermediate_size: int = 128
    vision_depth: int = 2
    head_dim: int = 32

    def __post_init__(self) -> None:
        for name in ("hidden_size", "vision_hidden_size"):
            if getattr(self, name) % self.head_dim:
                raise ValueError(f"{name}={getattr(self, name)} must be a multiple of head_dim={self.head_dim}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads={self.num_kv_heads} must divide the {self.num_heads} attention heads")

    @property
    def num_heads(self) -> int:
        return self.hidden_size // self.head_dim

    @property
    def num_vision_heads(self) -> int:
        return self.vision_hidden_size // self.head_dim


def build_toy_checkpoint(
    path: str | Path,
    *,
    family: str = "qwen2_5_vl",
    seed: int = 0,
    size: ToySize | None = None,
    patch_size: int = 14,
    max_pixels: int = 128 * 28 * 28,
    max_frames: int = 768,
    initializer_range: float = 0.05,
    max_length: int = 4096,
) -> Path:
    """Write a random-weight checkpoint of ``family`` with its processor to ``path`` and return ``path``.

    Args:
        path: folder to write, made if missing.
        family: ``qwen2_vl``, ``qwen2_5_vl`` or ``qwen3_vl``, the ``model_type`` of the released configs.
        seed: of the random weights; the caller's random state is left as it was.
        size: widths and depths.
        patch_size: side of a vision patch in pixels; a token covers two by two of them.
        max_pixels: the processor's cap on a frame's pixels, above which it would resize a frame itself. Keep it at
            least as large as the cap frames are sampled under, so that frames are resized once.
        max_frames: the most frames of a video that the processor's budget is made for.
        initializer_range: standard deviation of the weights; larger than Qwen's 0.02 because the widths are small.
        max_length: longest sequence in tokens.

    Raises:
        ValueError: ``family`` is unknown.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}: choose one of {', '.join(FAMILIES)}")
    path = Path(path)
    tokenizer = build_toy_tokenizer(max_length=max_length)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _build_model(family, tokenizer, size or ToySize(), patch_size, initializer_range, max_length)
        _liken_spaced_words(model, tokenizer)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.convert_tokens_to_ids([TURN_END, END_OF_TEXT]), pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(path)
    _build_processor(family, tokenizer, patch_size, max_pixels, max_frames).save_pretrained(path)
    return path


def _build_model(
    family: str,
    tokenizer: PreTrainedTokenizerFast,
    size: ToySize,
    patch_size: int,
    initializer_range: float,
    max_length: int,
) -> PreTrainedModel:
    temporal = size.head_dim // 8
    spatial = (size.head_dim // 2 - temporal) // 2
    text: dict[str, Any] = {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": size.hidden_size,
        "intermediate_size": size.intermediate_size,
        "num_hidden_layers": size.num_layers,
        "num_attention_heads": size.num_heads,
        "num_key_value_heads": size.num_kv_heads,
        "max_position_embeddings": max_length,
        "initializer_range": initializer_range,
        "bos_token_id": tokenizer.convert_tokens_to_ids(END_OF_TEXT),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [size.head_dim // 2 - 2 * spatial, spatial, spatial],
        },
    }
    vision: dict[str, Any] = {
        "depth": size.vision_depth,
        "num_heads": size.num_vision_heads,
        "patch_size": patch_size,
        "spatial_merge_size": MERGE_SIZE,
        "temporal_patch_size": TEMPORAL_PATCH_SIZE,
        "initializer_range": initializer_range,
    }
    ids: dict[str, Any] = {
        "image_token_id": tokenizer.convert_tokens_to_ids(IMAGE_PAD),
        "video_token_id": tokenizer.convert_tokens_to_ids(VIDEO_PAD),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids(VISION_START),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids(VISION_END),
        "tie_word_embeddings": True,
    }
    if family == "qwen2_vl":
        vision |= {
            "embed_dim": size.vision_hidden_size,
            "hidden_size": size.hidden_size,
            "mlp_ratio": size.vision_intermediate_size // size.vision_hidden_size,
        }
        return Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text, vision_config=vision, **ids))
    vision |= {
        "hidden_size": size.vision_hidden_size,
        "intermediate_size": size.vision_intermediate_size,
        "out_hidden_size": size.hidden_size,
    }
    if family == "qwen2_5_vl":
        vision |= {
            "window_size": 2 * MERGE_SIZE * patch_size,
            "fullatt_block_indexes": [size.vision_depth - 1],
            "tokens_per_second": 2,
        }
        return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids))
    text["head_dim"] = size.head_dim
    text["rope_parameters"]["mrope_interleaved"] = True
    vision |= {"num_position_embeddings": 16 * 16, "deepstack_visual_indexes": list(range(size.vision_depth - 1))}
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision, **ids))


@torch.no_grad()
def _liken_spaced_words(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Gives a word nearly one embedding with and without a space before it, as training on much text would."""
    weights_VH = model.get_input_embeddings().weight
    vocabulary = tokenizer.get_vocab()
    for token, spaced in sorted(vocabulary.items()):
        bare = vocabulary.get(token.removeprefix(SPACE)) if token.startswith(SPACE) else None
        if bare is not None:
            weights_VH[spaced] = 0.9 * weights_VH[bare] + (1 - 0.9**2) ** 0.5 * weights_VH[spaced]


def _build_processor(
    family: str, tokenizer: PreTrainedTokenizerFast, patch_size: int, max_pixels: int, max_frames: int
) -> ProcessorMixin:
    min_pixels = (MERGE_SIZE * patch_size) ** 2
    patches = {"patch_size": patch_size, "merge_size": MERGE_SIZE, "temporal_patch_size": TEMPORAL_PATCH_SIZE}
    frame_size = {"shortest_edge": min_pixels, "longest_edge": max_pixels}
    video = patches | {"cap_pixels_per_frame": False, "max_frames": max_frames, "do_sample_frames": False}
    parts: dict[str, Any] = {
        "image_processor": Qwen2VLImageProcessor(size=frame_size, **patches),
        "tokenizer": tokenizer,
        "chat_template": tokenizer.chat_template,
    }
    if family == "qwen3_vl":
        video_size = {"shortest_edge": min_pixels, "longest_edge": max_pixels * max_frames}
        return Qwen3VLProcessor(video_processor=Qwen3VLVideoProcessor(size=video_size, **video), **parts)
    processor = Qwen2_5_VLProcessor if family == "qwen2_5_vl" else Qwen2VLProcessor
    return processor(video_processor=Qwen2VLVideoProcessor(size=frame_size, **video), **parts)
