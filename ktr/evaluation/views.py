"""Views of a row: the same question with less, or other, visual evidence.

`full` is the row as it is; `shuffled` shows its frames in another order at the same positions; `no_video` asks the
question alone; `one_frame` shows the middle frame, repeated to fill one temporal patch. A view that cannot change a
row (no media, one temporal patch, an image's single frame) leaves it as it is and says so.

Legend: T frames, H and W pixels.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from ktr.attribution.views import shuffle_seed, shuffled_orders
from ktr.data.media import Frames, reorder_frames

if TYPE_CHECKING:
    from ktr.data.rows import Row
    from ktr.models.encoded_prompt import EncodedPrompt

View = Literal["full", "shuffled", "no_video", "one_frame"]
Granularity = Literal["frame", "patch"]
VIEWS: tuple[str, ...] = get_args(View)
TEMPORAL_PATCH = 2  # frames the vision tower merges into one grid, in every Qwen-VL family


class Encoder(Protocol):
    """What a view needs of a prompt encoder."""

    def load_frames(self, row: Row) -> Frames | None: ...

    def encode_frames(self, row: Row, frames: Frames | None) -> EncodedPrompt: ...


def shuffled_order(num_frames: int, *, seed: int, row_id: str, granularity: Granularity = "frame") -> list[int] | None:
    """One uniform permutation of the frames, never the identity; None for a video of one temporal patch.

    The draw depends on `seed` and `row_id` alone. With `patch`, pairs of frames stay together.
    """
    assert num_frames % TEMPORAL_PATCH == 0, f"{num_frames} frames do not fill temporal patches of {TEMPORAL_PATCH}"
    orders = shuffled_orders(
        num_frames // TEMPORAL_PATCH, 1, shuffle_seed(seed, 0, row_id), granularity=granularity,
        frames_per_grid=TEMPORAL_PATCH,
    )  # fmt: skip
    return orders[0] if orders else None


def middle_frame(frames: Frames) -> Frames:
    """The middle frame repeated to one temporal patch, marked `repeated`, with a digest of its own."""
    middle = len(frames.indices) // 2
    shown = [middle] * TEMPORAL_PATCH
    return dataclasses.replace(
        frames,
        pixels_T3HW=frames.pixels_T3HW[shown],
        indices=tuple(frames.indices[place] for place in shown),
        times=tuple(frames.times[place] for place in shown),
        digest=hashlib.sha256(f"{frames.digest}\0one_frame\0{middle}".encode()).hexdigest(),
        repeated=True,
    )


@dataclass(frozen=True, eq=False)
class ViewedPrompt:
    """A prompt under a view: whether the view `changed` the input, and the source indices `shown`, in that order."""

    prompt: EncodedPrompt
    changed: bool
    shown: tuple[int, ...]


def encode_view(
    encoder: Encoder, row: Row, view: View, *, seed: int = 0, granularity: Granularity = "frame"
) -> ViewedPrompt:
    """Encode a row under a view.

    Raises ValueError for an unknown view and passes the encoder's MediaError on (not for `no_video`, which reads no
    media).
    """
    if view not in VIEWS:
        raise ValueError(f"view must be one of {VIEWS}, got {view!r}")
    if view == "no_video":
        return ViewedPrompt(encoder.encode_frames(row, None), row.media is not None, ())
    frames = encoder.load_frames(row)
    if frames is None:
        return ViewedPrompt(encoder.encode_frames(row, None), view == "full", ())
    if view == "full":
        return ViewedPrompt(encoder.encode_frames(row, frames), True, frames.indices)
    if view == "one_frame" and frames.kind == "video":
        single = middle_frame(frames)
        return ViewedPrompt(encoder.encode_frames(row, single), True, single.indices)
    order = None
    if view == "shuffled" and frames.kind == "video":
        order = shuffled_order(len(frames.indices), seed=seed, row_id=row.id, granularity=granularity)
    if order is None:
        return ViewedPrompt(encoder.encode_frames(row, frames), False, frames.indices)
    prompt = encoder.encode_frames(row, reorder_frames(frames, order))
    return ViewedPrompt(prompt, True, tuple(frames.indices[place] for place in order))
