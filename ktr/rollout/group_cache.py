"""Key-value cache of a decoding batch: the prompts' entries taken once for each of their completions.

R rows of the batch, K key-value heads, S cached tokens, D head dimension.
"""

from __future__ import annotations

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

ROOM = 64
"""Tokens a buffer grows by: appending copies nothing until the room is used up."""


class GroupLayer(DynamicLayer):
    """One layer's keys and values in buffers with room at the end; `keys` and `values` are views of the used part."""

    def __init__(self, keys_RKSD: torch.Tensor, values_RKSD: torch.Tensor) -> None:
        super().__init__()
        self.dtype, self.device = keys_RKSD.dtype, keys_RKSD.device
        self.is_initialized = True
        self._key_buffer = _with_room(keys_RKSD, ROOM)
        self._value_buffer = _with_room(values_RKSD, ROOM)
        self._use(keys_RKSD.shape[2])

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.keys.shape[2]
        end = start + key_states.shape[2]
        if end > self._key_buffer.shape[2]:
            room = max(ROOM, key_states.shape[2])
            self._key_buffer = _with_room(self.keys, room)
            self._value_buffer = _with_room(self.values, room)
        self._key_buffer[:, :, start:end] = key_states
        self._value_buffer[:, :, start:end] = value_states
        self._use(end)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps the rows `indices`."""
        length = self.keys.shape[2]
        self._key_buffer, self._value_buffer = self._key_buffer[indices], self._value_buffer[indices]
        self._use(length)

    def _use(self, length: int) -> None:
        self.keys, self.values = self._key_buffer[:, :, :length], self._value_buffer[:, :, :length]


def expand_cache(prompt_cache: Cache, prompt_of_R: torch.Tensor) -> Cache:
    """The cache of a decoding batch whose row r continues prompt `prompt_of_R[r]`; the prompts' cache stays usable.

    Raises:
        ValueError: a layer keeps a sliding window, whose entries cannot be shared this way.
    """
    layers = []
    for layer in prompt_cache.layers:
        if layer.is_sliding:
            raise ValueError("models with sliding-window attention are not supported: set use_sliding_window to false")
        layers.append(GroupLayer(layer.keys[prompt_of_R], layer.values[prompt_of_R]))
    return Cache(layers=layers)


def _with_room(states_RKSD: torch.Tensor, room: int) -> torch.Tensor:
    rows, heads, length, head_dim = states_RKSD.shape
    buffer = states_RKSD.new_empty(rows, heads, length + room, head_dim)
    buffer[:, :, :length] = states_RKSD
    return buffer
