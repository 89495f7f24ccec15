"""Model families: what differs between Qwen2-VL, Qwen2.5-VL and Qwen3-VL, behind one interface.

P prompt tokens; B prompts of a batch; N visual patches before merging; D values of a patch; M visual tokens, that is
patches after merging (`N / merge_size**2`); H hidden size of the language model; T temporal grids.

Encoded vision features enter a model through its top-level forward as `mm_encoder_outputs` and never as
`inputs_embeds`, which would lose the features that Qwen3-VL adds to its first layers (DeepStack, arXiv 2406.04334).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import nn

from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.positions import VisionSpan, qwen2_5_vl_positions, qwen2_vl_positions, qwen3_vl_positions

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class VisionFeatures(NamedTuple):
    """Encoded image or video of one prompt: `pooled_MH` and, for Qwen3-VL, one `(M, H)` tensor a deepstack layer."""

    pooled_MH: torch.Tensor
    deepstack: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True)
class Family(ABC):
    """Facts of one checkpoint's family, read from its config.

    Args:
        patch_size: pixels along one side of a patch.
        merge_size: patches merged along height and along width into one visual token.
        temporal_patch_size: frames in one temporal grid.
        image_token_id, video_token_id: placeholders of the two kinds.
        vision_start_token_id, vision_end_token_id: markers around a span.
        tokens_per_second: time ticks a second (Qwen2.5-VL only).
        max_positions: longest sequence the language model was configured for.
    """

    patch_size: int
    merge_size: int
    temporal_patch_size: int
    image_token_id: int
    video_token_id: int
    vision_start_token_id: int
    vision_end_token_id: int
    tokens_per_second: float | None
    max_positions: int

    name: ClassVar[str]
    splits_video_by_timestamp: ClassVar[bool] = False

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> Family:
        vision = config.vision_config
        return cls(
            patch_size=vision.patch_size,
            merge_size=vision.spatial_merge_size,
            temporal_patch_size=vision.temporal_patch_size,
            image_token_id=config.image_token_id,
            video_token_id=config.video_token_id,
            vision_start_token_id=config.vision_start_token_id,
            vision_end_token_id=config.vision_end_token_id,
            tokens_per_second=getattr(vision, "tokens_per_second", None),
            max_positions=config.get_text_config().max_position_embeddings,
        )

    @property
    def resize_factor(self) -> int:
        """Height and width of a frame must be multiples of this many pixels."""
        return self.patch_size * self.merge_size

    @property
    def pad_ids(self) -> tuple[int, int]:
        """Ids that stand for visual tokens."""
        return self.image_token_id, self.video_token_id

    @property
    def placeholder_ids(self) -> tuple[int, ...]:
        """Ids that a sampler must never produce: pads and the markers around them."""
        return (*self.pad_ids, self.vision_start_token_id, self.vision_end_token_id)

    def placeholder_id(self, kind: str) -> int:
        """The pad of an `image` or a `video`."""
        return {"image": self.image_token_id, "video": self.video_token_id}[kind]

    @abstractmethod
    def positions(self, input_ids_P: torch.Tensor, spans: Sequence[VisionSpan]) -> torch.Tensor:
        """Positions `(3, P)` of a prompt under this family's rule; see `ktr.models.positions`."""

    def forward_inputs(
        self, prompts: Sequence[EncodedPrompt], device: torch.device | str | None = None
    ) -> dict[str, torch.Tensor]:
        """Vision arguments of the model's forward for a batch: images and videos apart, each in row order.

        Keys are present only for the kinds that the batch holds: `pixel_values (N, D)` and `image_grid_thw (B, 3)`,
        `pixel_values_videos (N, D)` and `video_grid_thw (B, 3)`.
        """
        inputs: dict[str, torch.Tensor] = {}
        for kind, pixels_key, grid_key in MEDIA_INPUTS:
            of_kind = [prompt for prompt in prompts if prompt.modality == kind]
            pixels = [prompt.pixel_values_ND for prompt in of_kind if prompt.pixel_values_ND is not None]
            assert len(pixels) == len(of_kind), f"a {kind} prompt has no pixels"
            if of_kind:
                inputs[pixels_key] = torch.cat(pixels).to(device)
                inputs[grid_key] = torch.tensor([prompt.grid_thw for prompt in of_kind], device=device)
        return inputs

    def encode_vision(self, model: nn.Module, prompts: Sequence[EncodedPrompt]) -> list[VisionFeatures | None]:
        """Runs the vision tower once over all prompts; None for a prompt without media.

        Gradients flow where the tower is trainable and gradients are on.
        """
        base = unwrap_model(model)
        inputs = self.forward_inputs(prompts, device=next(base.parameters()).device)
        features: list[VisionFeatures | None] = [None] * len(prompts)
        for kind, pixels_key, grid_key in MEDIA_INPUTS:
            if pixels_key not in inputs:
                continue
            encode = base.get_image_features if kind == "image" else base.get_video_features
            outputs = encode(inputs[pixels_key], inputs[grid_key], return_dict=True)
            rows = [row for row, prompt in enumerate(prompts) if prompt.modality == kind]
            for number, row in enumerate(rows):
                deepstack = getattr(outputs, "deepstack_features", None) or ()
                features[row] = VisionFeatures(
                    outputs.pooler_output[number], tuple(layer[number] for layer in deepstack)
                )
        return features

    def mm_encoder_outputs(
        self, features: Sequence[VisionFeatures | None], prompts: Sequence[EncodedPrompt]
    ) -> dict[str, Any]:
        """The `mm_encoder_outputs` argument of the top-level forward, for features in the rows' order.

        Example: `model(input_ids=..., mm_encoder_outputs=family.mm_encoder_outputs(features, prompts))`
        """
        assert len(features) == len(prompts), "one entry of features for each prompt"
        outputs: dict[str, Any] = {}
        for kind, _, _ in MEDIA_INPUTS:
            rows = [row for row, prompt in enumerate(prompts) if prompt.modality == kind]
            of_kind = [encoded for row in rows if (encoded := features[row]) is not None]
            assert len(of_kind) == len(rows), f"a {kind} prompt has no features"
            if of_kind:
                outputs[kind] = self._encoder_output(of_kind)
        return outputs

    def _encoder_output(self, features: Sequence[VisionFeatures]) -> Any:
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        return BaseModelOutputWithPooling(pooler_output=tuple(f.pooled_MH for f in features))


@dataclass(frozen=True)
class Qwen2VL(Family):
    """Qwen2-VL (arXiv 2409.12191)."""

    name: ClassVar[str] = "qwen2_vl"

    def positions(self, input_ids_P: torch.Tensor, spans: Sequence[VisionSpan]) -> torch.Tensor:
        return qwen2_vl_positions(input_ids_P, spans, self.pad_ids, merge_size=self.merge_size)


@dataclass(frozen=True)
class Qwen2_5VL(Family):
    """Qwen2.5-VL (arXiv 2502.13923)."""

    name: ClassVar[str] = "qwen2_5_vl"

    def positions(self, input_ids_P: torch.Tensor, spans: Sequence[VisionSpan]) -> torch.Tensor:
        assert self.tokens_per_second is not None
        return qwen2_5_vl_positions(
            input_ids_P,
            spans,
            self.pad_ids,
            merge_size=self.merge_size,
            tokens_per_second=self.tokens_per_second,
        )


@dataclass(frozen=True)
class Qwen3VL(Family):
    """Qwen3-VL (arXiv 2511.21631): textual timestamps and deepstack features."""

    name: ClassVar[str] = "qwen3_vl"
    splits_video_by_timestamp: ClassVar[bool] = True

    def positions(self, input_ids_P: torch.Tensor, spans: Sequence[VisionSpan]) -> torch.Tensor:
        return qwen3_vl_positions(input_ids_P, spans, self.pad_ids, merge_size=self.merge_size)

    def _encoder_output(self, features: Sequence[VisionFeatures]) -> Any:
        from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

        layers = zip(*(f.deepstack for f in features), strict=True)
        return BaseModelOutputWithDeepstackFeatures(
            pooler_output=tuple(f.pooled_MH for f in features), deepstack_features=[tuple(layer) for layer in layers]
        )


MEDIA_INPUTS = (
    ("image", "pixel_values", "image_grid_thw"),
    ("video", "pixel_values_videos", "video_grid_thw"),
)

FAMILIES: dict[str, type[Family]] = {family.name: family for family in (Qwen2VL, Qwen2_5VL, Qwen3VL)}


def family_of(config: PreTrainedConfig) -> Family:
    """The family of a checkpoint's config.

    Raises:
        ValueError: the model type is none of the supported families.
    """
    family = FAMILIES.get(config.model_type)
    if family is None:
        raise ValueError(f"model type {config.model_type!r} is not supported; supported are: {', '.join(FAMILIES)}")
    return family.from_config(config)


def permute_patches(features: VisionFeatures, grid_thw: tuple[int, int, int], order: Sequence[int]) -> VisionFeatures:
    """Features of the video whose temporal grids are taken in `order`.

    Attention in all three vision towers stays inside one temporal grid and their own positions know no time, so this
    equals encoding the permuted patches bit for bit, without a second pass of the tower.

    Raises:
        ValueError: `order` is not a permutation of the temporal grids.
    """
    check_order(order, grid_thw[0])
    index = torch.as_tensor(list(order), device=features.pooled_MH.device)

    def permuted(x_MH: torch.Tensor) -> torch.Tensor:
        return x_MH.view(grid_thw[0], -1, x_MH.shape[-1])[index].view_as(x_MH)

    return VisionFeatures(permuted(features.pooled_MH), tuple(permuted(layer) for layer in features.deepstack))


def zero_features(features: VisionFeatures) -> VisionFeatures:
    """Features of the same shape that carry nothing: the "no video" of Video-KTR (arXiv 2601.19686)."""
    return VisionFeatures(
        torch.zeros_like(features.pooled_MH), tuple(torch.zeros_like(layer) for layer in features.deepstack)
    )


def permute_pixel_patches(prompt: EncodedPrompt, order: Sequence[int]) -> EncodedPrompt:
    """The prompt with whole temporal grids of its pixels in another order; ids and positions stay.

    The decoded frames no longer describe the pixels and are left out (`frames=None`).

    Raises:
        ValueError: the prompt has no media, or `order` is not a permutation of its temporal grids.
    """
    if prompt.pixel_values_ND is None or prompt.grid_thw is None:
        raise ValueError(f"row {prompt.row.id!r} has no image or video to permute")
    check_order(order, prompt.grid_thw[0])
    pixels = prompt.pixel_values_ND
    permuted = pixels.view(prompt.grid_thw[0], -1, pixels.shape[-1])[list(order)].view_as(pixels)
    return replace(prompt, pixel_values_ND=permuted, frames=None)


def check_order(order: Sequence[int], size: int) -> None:
    """Raises ValueError unless `order` is a permutation of `range(size)`."""
    if sorted(order) != list(range(size)):
        raise ValueError(f"order {list(order)} is not a permutation of 0..{size - 1}")


def unwrap_model(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside DDP, DeepSpeed, torch.compile and PEFT wrappers (adapters stay active)."""
    inner: Any = model
    while True:
        if hasattr(inner, "_orig_mod"):
            inner = inner._orig_mod
        elif isinstance(getattr(inner, "module", None), nn.Module):
            inner = inner.module
        elif hasattr(inner, "get_base_model"):
            inner = inner.get_base_model()
        else:
            return inner
