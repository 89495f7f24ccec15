"""Encoded vision on disk for a frozen tower: a video is encoded once, whatever the number of epochs and runs.

The key is the frames' digest, the processor's normalisation, the tower's weights and precision, autocast and the kind
of device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from ktr.data.disk_store import DiskStore, key_of
from ktr.models.families import Family, VisionFeatures, unwrap_model

if TYPE_CHECKING:
    from transformers import ProcessorMixin

    from ktr.models.encoded_prompt import EncodedPrompt


class FeatureStore:
    """Reads a frozen tower's features through a `DiskStore`.

    Each prompt is encoded alone, so that its features do not depend on the prompts beside it: read from disk or
    computed, they are the same to the bit.

    Raises:
        ValueError: the tower is trained, so its features change.
    """

    def __init__(self, store: DiskStore, model: nn.Module, family: Family, processor: ProcessorMixin) -> None:
        tower = unwrap_model(model).model.visual
        if any(parameter.requires_grad for parameter in tower.parameters()):
            raise ValueError("features of a tower that is trained cannot be kept: set model.freeze_vision=true")
        self.store = store
        self.family = family
        self._setup = (family.name, tower_digest(tower), _normalisation(processor))

    @torch.no_grad()
    def encode(self, model: nn.Module, prompts: Sequence[EncodedPrompt]) -> list[VisionFeatures | None]:
        """Features of each prompt, on the model's device; None for a prompt without media."""
        device = next(unwrap_model(model).parameters()).device
        autocast = str(torch.get_autocast_dtype(device.type)) if torch.is_autocast_enabled(device.type) else None
        precision = [device.type, autocast]
        features: list[VisionFeatures | None] = []
        for prompt in prompts:
            if prompt.frames is None:
                features += self.family.encode_vision(model, [prompt])
                continue
            frames = prompt.frames
            key = key_of("features", self._setup, precision, frames.digest, prompt.modality, prompt.grid_thw)
            found = self.store.get(key)
            if found is not None:
                features.append(_features(found[1], device))
                continue
            (encoded,) = self.family.encode_vision(model, [prompt])
            assert encoded is not None, "a prompt with frames has features"
            layers = {f"deepstack{i}": layer for i, layer in enumerate(encoded.deepstack)}
            self.store.put(key, {}, {"pooled": encoded.pooled_MH, **layers})
            features.append(encoded)
        return features


def _features(tensors: dict[str, torch.Tensor], device: torch.device) -> VisionFeatures:
    layers = [tensors[f"deepstack{i}"].to(device) for i in range(len(tensors) - 1)]
    return VisionFeatures(tensors["pooled"].to(device), tuple(layers))


def tower_digest(tower: nn.Module) -> str:
    """A digest of the tower's weights, their names and precisions."""
    digest = hashlib.blake2b(digest_size=20)
    for name, tensor in sorted(tower.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _normalisation(processor: ProcessorMixin) -> list[list[object]]:
    parts = (processor.image_processor, processor.video_processor)
    return [
        [part.do_rescale, part.rescale_factor, part.do_normalize, list(part.image_mean), list(part.image_std)]
        for part in parts
    ]
