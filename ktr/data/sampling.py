"""Which frames of a video are used and how large they become: pure functions, no decoding, no torch.

The counts, indices and sizes are those of qwen-vl-utils 0.0.14 (`smart_nframes`, `smart_resize`, `fetch_video`),
except where that fails or guesses: a video shorter than asked gives what it has, and a variable frame rate is sampled
evenly in time, not in frame numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TEMPORAL_PATCH = 2
"""Frames of one temporal patch (`temporal_patch_size` of the Qwen-VL families); counts are multiples of it."""
MAX_ASPECT_RATIO = 200
UNEVEN_SHARE = 0.25
"""Frame times further than this share of a frame interval from an even spacing make a variable frame rate."""
_TIME_EPSILON = 1e-6


@dataclass(frozen=True)
class FrameSampling:
    """How many frames and pixels of a video the model sees. Exactly one of `fps` and `nframes` is set.

    Args:
        fps: frames per second of video, bounded by `min_frames` and `max_frames`.
        nframes: a fixed count, rounded to a multiple of 2.
        min_pixels, max_pixels: bounds of one frame's area after the resize, in pixels.
        total_pixels: bound of all frames together; two frames share one temporal patch and count once.

    Example:
        `FrameSampling(nframes=16, max_pixels=128 * 28 * 28)` is Video-R1's training setting.
    """

    fps: float | None = None
    nframes: int | None = None
    min_frames: int = 4
    max_frames: int = 768
    min_pixels: int = 4 * 28 * 28
    max_pixels: int = 128 * 28 * 28
    total_pixels: int | None = None

    def __post_init__(self) -> None:
        if self.fps is not None and self.nframes is not None:
            raise ValueError(f"fps={self.fps} and nframes={self.nframes} exclude each other; set one of them to null")
        if self.fps is None and self.nframes is None:
            raise ValueError("neither fps nor nframes is set; set exactly one of them")
        if self.fps is not None and not (math.isfinite(self.fps) and self.fps > 0):
            raise ValueError(f"fps={self.fps} must be a positive number")
        if self.nframes is not None and self.nframes < TEMPORAL_PATCH:
            raise ValueError(f"nframes={self.nframes} must be at least {TEMPORAL_PATCH} (the frames of one patch)")
        if self.min_frames < TEMPORAL_PATCH:
            raise ValueError(f"min_frames={self.min_frames} must be at least {TEMPORAL_PATCH}")
        if _ceil_even(self.min_frames) > _floor_even(self.max_frames):
            raise ValueError(
                f"min_frames={self.min_frames} is above max_frames={self.max_frames} (both as even counts)"
            )
        if self.min_pixels < 1:
            raise ValueError(f"min_pixels={self.min_pixels} must be positive")
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels={self.min_pixels} is above max_pixels={self.max_pixels}")
        if self.total_pixels is not None and self.total_pixels < self.min_pixels:
            raise ValueError(f"total_pixels={self.total_pixels} is below min_pixels={self.min_pixels}")

    def frame_count(self, available: int, seconds: float) -> tuple[int, bool]:
        """Frames to use of `available` ones that cover `seconds`, and whether the video was too short for the wish.

        The count is even; a single available frame gives 2, which is that frame repeated.
        """
        assert available >= 1, "a video without frames is refused before sampling"
        if self.nframes is not None:
            wanted: float = round(self.nframes / TEMPORAL_PATCH) * TEMPORAL_PATCH
        else:
            assert self.fps is not None
            low, high = _ceil_even(self.min_frames), _floor_even(self.max_frames)
            wanted = min(max(seconds * self.fps + _TIME_EPSILON, low), high)
        used = max(_floor_even(min(wanted, available)), TEMPORAL_PATCH)
        return used, _floor_even(wanted) > available

    def frame_budget(self, nframes: int) -> int:
        """Largest area in pixels that each of `nframes` frames may have."""
        if self.total_pixels is None:
            return self.max_pixels
        share = int(self.total_pixels / nframes * TEMPORAL_PATCH)
        return min(self.max_pixels, max(share, int(self.min_pixels * 1.05)))


def _floor_even(count: float) -> int:
    return math.floor(count / TEMPORAL_PATCH) * TEMPORAL_PATCH


def _ceil_even(count: float) -> int:
    return math.ceil(count / TEMPORAL_PATCH) * TEMPORAL_PATCH


def frame_interval(times_N: NDArray[np.float64], rate: float) -> float:
    """Seconds a frame stays on screen: the mean spacing; for a single frame, the declared rate's (0 without one)."""
    if len(times_N) > 1:
        return float((times_N[-1] - times_N[0]) / (len(times_N) - 1))
    return 1.0 / rate if rate > 0 else 0.0


def clip_span(times_N: NDArray[np.float64], start: float | None, end: float | None) -> tuple[int, int]:
    """First and last frame number whose time lies in [start, end] seconds.

    A part that falls between two frames gives the frame on screen at its start. Raises ValueError when it begins
    after the last frame's time.
    """
    first = 0 if start is None else int(np.searchsorted(times_N, start - _TIME_EPSILON, side="left"))
    last = len(times_N) - 1 if end is None else int(np.searchsorted(times_N, end + _TIME_EPSILON, side="right")) - 1
    if first > last:
        on_screen = max(min(first, len(times_N)) - 1, 0)
        if first == len(times_N) and start is not None:
            interval = frame_interval(times_N, 0.0)
            if start >= times_N[-1] + max(interval, _TIME_EPSILON):
                raise ValueError(f"start {start} lies past the last frame at {times_N[-1]:.3f} s")
        return on_screen, on_screen
    return first, last


def even_indices(first: int, last: int, count: int) -> list[int]:
    """`count` frame numbers from `first` to `last`, evenly spaced, rounded as qwen-vl-utils does (in float32)."""
    if count == 1:
        return [first]
    step = np.float32(last - first) / np.float32(count - 1)
    k = np.arange(count, dtype=np.float32)
    low, high = np.float32(first) + step * k, np.float32(last) - step * (np.float32(count - 1) - k)
    return [int(value) for value in np.rint(np.where(k < count // 2, low, high))]


def choose_indices(times_N: NDArray[np.float64], first: int, last: int, count: int) -> list[int]:
    """`count` frame numbers between `first` and `last`, evenly spaced in time.

    With a steady frame rate these are `even_indices`; with a variable one, the frames whose presentation times are
    nearest to evenly spaced moments (a frame that stays on screen long may be chosen more than once).
    """
    if first == last:
        return [first] * count
    span_S = times_N[first : last + 1]
    even_S = np.linspace(span_S[0], span_S[-1], len(span_S))
    spacing = (span_S[-1] - span_S[0]) / (len(span_S) - 1)
    if np.abs(span_S - even_S).max() <= UNEVEN_SHARE * spacing:
        return even_indices(first, last, count)
    moments_C = np.linspace(span_S[0], span_S[-1], count)
    right_C = np.clip(np.searchsorted(span_S, moments_C), 1, len(span_S) - 1)
    nearer_left_C = moments_C - span_S[right_C - 1] <= span_S[right_C] - moments_C
    return [int(index) for index in first + right_C - nearer_left_C]


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Height and width divisible by `factor`, with an area within the bounds and nearly the same aspect ratio.

    Raises ValueError for a side ratio above 200, as the released processors do.
    """
    if max(height, width) / min(height, width) > MAX_ASPECT_RATIO:
        raise ValueError(f"{width}x{height}: one side is more than {MAX_ASPECT_RATIO} times the other")
    new_height = max(factor, round(height / factor) * factor)
    new_width = max(factor, round(width / factor) * factor)
    if new_height * new_width > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif new_height * new_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * grow / factor) * factor
        new_width = math.ceil(width * grow / factor) * factor
    return new_height, new_width
