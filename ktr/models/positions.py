"""Multimodal rotary positions: one pure function for each model family's own rule.

P tokens of the prompt; T, H, W patches of a vision span along time, height and width; rows of a `(3, P)` result
are the time, height and width axes, equal to one another for text.

All three families number text by one running counter and give a vision span three coordinates that start at the
counter. They differ in the time axis:

* Qwen2-VL (arXiv 2409.12191, section 2.1): one step a temporal grid, whatever the frame rate.
* Qwen2.5-VL (arXiv 2502.13923, section 2.1.2): real time, `floor(grid * second_per_grid * tokens_per_second)`.
* Qwen3-VL (arXiv 2511.21631): each temporal grid is a span of its own behind a textual timestamp, so its time
  coordinate does not move.

After a span the counter goes on at the largest coordinate inside it, over ALL axes, plus one: that is the rule of
the models' original code and of vLLM. `get_rope_index` of transformers 5.3 and later goes on from height and width
alone, so a video with more time than space (84 grids of 12x16 at 1 s) is followed by text numbered before its end.
Images and Qwen3-VL have no time axis to lose and agree with both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class VisionSpan:
    """One image or video in a prompt.

    Args:
        placeholder_id: token that stands once for each merged patch.
        grid_thw: patches along time, height and width, before merging.
        second_per_grid: seconds one temporal grid covers; only Qwen2.5-VL videos need it, images leave it None.

    Example: `VisionSpan(placeholder_id=151656, grid_thw=(84, 24, 32), second_per_grid=1.0)`
    """

    placeholder_id: int
    grid_thw: tuple[int, int, int]
    second_per_grid: float | None = None

    def num_tokens(self, merge_size: int) -> int:
        """Placeholder tokens of the span, `T * H * W / merge_size**2`."""
        t, h, w = self.grid_thw
        return t * (h // merge_size) * (w // merge_size)


def qwen2_vl_positions(
    input_ids_P: torch.Tensor, spans: Sequence[VisionSpan], placeholder_ids: Sequence[int], *, merge_size: int
) -> torch.Tensor:
    """Positions `(3, P)` of a Qwen2-VL prompt: one time step a temporal grid.

    Args:
        input_ids_P: prompt tokens, placeholders already expanded.
        spans: the images and videos in the order in which they stand in the prompt.
        placeholder_ids: every id that marks a visual token (image and video pad).
        merge_size: patches merged along height and along width.

    Raises:
        ValueError: the placeholders in the prompt do not match the spans.
    """
    return _walk(input_ids_P, spans, placeholder_ids, merge_size, lambda span: np.arange(span.grid_thw[0]))


def qwen2_5_vl_positions(
    input_ids_P: torch.Tensor,
    spans: Sequence[VisionSpan],
    placeholder_ids: Sequence[int],
    *,
    merge_size: int,
    tokens_per_second: float,
) -> torch.Tensor:
    """Positions `(3, P)` of a Qwen2.5-VL prompt: time in ticks of `1 / tokens_per_second` seconds.

    The tick of a grid is truncated after multiplying index, seconds and rate in this order in float32, as in the
    model's original code. Spans without `second_per_grid` are images.

    Raises:
        ValueError: the placeholders do not match the spans, or a span of several grids has no `second_per_grid`.
    """

    def ticks(span: VisionSpan) -> np.ndarray:
        grids = np.arange(span.grid_thw[0], dtype=np.float32)
        if span.second_per_grid is None:
            if len(grids) > 1:
                raise ValueError(
                    f"a video of {len(grids)} temporal grids has no second_per_grid: give the seconds each grid covers"
                )
            return grids.astype(np.int64)
        return (grids * np.float32(span.second_per_grid) * np.float32(tokens_per_second)).astype(np.int64)

    return _walk(input_ids_P, spans, placeholder_ids, merge_size, ticks)


def qwen3_vl_positions(
    input_ids_P: torch.Tensor, spans: Sequence[VisionSpan], placeholder_ids: Sequence[int], *, merge_size: int
) -> torch.Tensor:
    """Positions `(3, P)` of a Qwen3-VL prompt: every temporal grid is a span of its own with a constant time.

    A video is given as one `VisionSpan`; its grids are found one by one between the textual timestamps.

    Raises:
        ValueError: the placeholders in the prompt do not match the spans.
    """
    grids = [
        VisionSpan(span.placeholder_id, (1, *span.grid_thw[1:])) for span in spans for _ in range(span.grid_thw[0])
    ]
    return _walk(input_ids_P, grids, placeholder_ids, merge_size, lambda span: np.zeros(1, dtype=np.int64))


def _walk(
    input_ids_P: torch.Tensor,
    spans: Sequence[VisionSpan],
    placeholder_ids: Sequence[int],
    merge_size: int,
    time_index: Callable[[VisionSpan], np.ndarray],
) -> torch.Tensor:
    """Numbers text and spans from left to right; `time_index` gives the `(T,)` time coordinates of a span from 0."""
    ids_P = input_ids_P.cpu().numpy()
    visual_P = np.isin(ids_P, list(placeholder_ids))
    positions_3P = np.empty((3, len(ids_P)), dtype=np.int64)
    cursor, counter = 0, 0
    visual_at = np.flatnonzero(visual_P)
    found = 0
    for number, span in enumerate(spans):
        size = span.num_tokens(merge_size)
        at = visual_at[found : found + size]
        contiguous = len(at) == size and at[-1] - at[0] == size - 1
        if not contiguous or (ids_P[at] != span.placeholder_id).any():
            raise ValueError(
                f"span {number} (grid {span.grid_thw}) needs {size} neighbouring placeholders {span.placeholder_id}, "
                f"and the prompt's visual tokens from number {found} on do not hold them: it was cut or wrongly "
                "expanded"
            )
        start = int(at[0])
        positions_3P[:, cursor:start] = np.arange(counter, counter + start - cursor)
        counter += start - cursor
        t, h, w = span.grid_thw[0], span.grid_thw[1] // merge_size, span.grid_thw[2] // merge_size
        block_3THW = positions_3P[:, start : start + size].reshape(3, t, h, w)
        block_3THW[0] = time_index(span)[:, None, None]
        block_3THW[1] = np.arange(h)[None, :, None]
        block_3THW[2] = np.arange(w)[None, None, :]
        block_3P = block_3THW.reshape(3, size) + counter
        positions_3P[:, start : start + size] = block_3P
        counter = int(block_3P.max()) + 1
        cursor, found = start + size, found + size
    if found != len(visual_at):
        raise ValueError(
            f"the prompt holds {len(visual_at)} visual tokens and its {len(spans)} spans account for {found}"
        )
    positions_3P[:, cursor:] = np.arange(counter, counter + len(ids_P) - cursor)
    return torch.from_numpy(positions_3P)
