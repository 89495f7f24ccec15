"""From a file to the one tensor that rollout, scoring and evaluation all see.

Shapes: T frames used, H and W after the only resize, both divisible by the model's patch * merge factor.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ktr.data.decoders import VideoReader, with_decoder
from ktr.data.paths import MediaError, resolve_media
from ktr.data.rows import Media
from ktr.data.sampling import TEMPORAL_PATCH, FrameSampling, choose_indices, clip_span, frame_interval, smart_resize

__all__ = ["FrameSampling", "Frames", "MediaError", "load_frames", "reorder_frames", "resolve_media"]

RESIZE_BATCH = 16
"""Frames resized at a time, which bounds the memory of float copies."""


@dataclass(frozen=True, eq=False)
class Frames:
    """Decoded, sampled and resized frames of one video or image.

    Args:
        pixels_T3HW: uint8 RGB; T is even for a video and 1 for an image.
        indices: frame numbers in the file, one per frame.
        times: presentation times, seconds from the file's first frame.
        second_per_grid: seconds between temporal patches (2 frames): twice the covered time over T; 0 for an image.
        digest: hash of pixels and times.
        source_size: (height, width) upright, before the resize.
        duration: seconds of the whole file; None for an image.
        total_frames: frames the file really stores.
        fps: the file's average frame rate; 0 for an image.
        backend: the decoder that read the file.
        repeated: the part asked about holds one frame, which is given twice.
        clamped: fewer frames than the settings ask for, because the part holds no more, or its end lies past the file.
    """

    pixels_T3HW: torch.Tensor
    indices: tuple[int, ...]
    times: tuple[float, ...]
    second_per_grid: float
    digest: str
    kind: str
    source_size: tuple[int, int]
    duration: float | None
    total_frames: int
    fps: float
    backend: str
    repeated: bool
    clamped: bool


def load_frames(path: Path, media: Media, sampling: FrameSampling, *, factor: int, decoder: str = "auto") -> Frames:
    """Frames of `media`, read from `path` (see `resolve_media`).

    Args:
        factor: pixels that height and width are divisible by: the model's patch size times its spatial merge.
        decoder: `auto`, `pyav`, `torchcodec` or `decord`.

    Raises:
        MediaError: with a reason code; the file is never replaced by another, nor damaged frames by their neighbours.
    """
    path = Path(path).absolute()
    _check_file(path)
    if media.kind == "image":
        return _load_image(path, sampling, factor)
    return with_decoder(path, decoder, lambda reader, name: _load_video(path, media, sampling, factor, reader, name))


def _check_file(path: Path) -> None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MediaError(path, "missing", "no such file") from error
    except OSError as error:
        raise MediaError(path, "unreadable", f"{error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise MediaError(path, "not_a_file", "not a regular file")
    if status.st_size == 0:
        raise MediaError(path, "empty", "the file has 0 bytes")
    if not os.access(path, os.R_OK):
        raise MediaError(path, "unreadable", "no permission to read it")


def reorder_frames(frames: Frames, order: Sequence[int]) -> Frames:
    """The same moments with the pictures permuted: frame t shows what frame `order[t]` showed.

    Times, indices and `second_per_grid` stay, so that positions stay; the digest is the new content's.
    """
    assert sorted(order) == list(range(len(frames.times))), "the order is a permutation of the frames"
    pixels_T3HW = frames.pixels_T3HW[torch.as_tensor(list(order))]
    return replace(frames, pixels_T3HW=pixels_T3HW, digest=_digest(pixels_T3HW, frames.times))


def _load_video(
    path: Path, media: Media, sampling: FrameSampling, factor: int, reader: VideoReader, backend: str
) -> Frames:
    try:
        return _sample_video(path, media, sampling, factor, reader, backend)
    except MediaError as error:
        if error.reason != "damaged" or not reader.recount():
            raise
    return _sample_video(path, media, sampling, factor, reader, backend)


def _sample_video(
    path: Path, media: Media, sampling: FrameSampling, factor: int, reader: VideoReader, backend: str
) -> Frames:
    times_N = reader.times_N
    duration, spacing = reader.duration, frame_interval(times_N, reader.rate)
    try:
        first, last = clip_span(times_N, media.start, media.end)
    except ValueError as error:
        raise MediaError(path, "bounds", str(error)) from error
    interval = frame_interval(times_N[first : last + 1], reader.rate)
    covered = float(times_N[last] - times_N[first]) + interval
    count, clamped = sampling.frame_count(last - first + 1, covered)
    indices = choose_indices(times_N, first, last, count)
    pixels_T3HW, source_size = _resized(path, reader.read(indices), sampling, count, factor)
    assert len(pixels_T3HW) == count, "a reader gives every frame asked for or raises"
    times = tuple(float(times_N[index]) for index in indices)
    return Frames(
        pixels_T3HW=pixels_T3HW,
        indices=tuple(indices),
        times=times,
        second_per_grid=TEMPORAL_PATCH * covered / count,
        digest=_digest(pixels_T3HW, times),
        kind="video",
        source_size=source_size,
        duration=duration,
        total_frames=len(times_N),
        fps=1.0 / spacing if spacing > 0 else 0.0,
        backend=backend,
        repeated=first == last,
        clamped=clamped or (media.end is not None and media.end > duration + spacing),
    )


def _load_image(path: Path, sampling: FrameSampling, factor: int) -> Frames:
    try:
        with Image.open(path) as image:
            image.load()
            upright = _to_rgb(ImageOps.exif_transpose(image))
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise MediaError(path, "undecodable", f"not an image PIL can open ({error})") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise MediaError(path, "damaged", f"the image cannot be decoded ({error})") from error
    pixels_T3HW, source_size = _resized(path, [np.asarray(upright)], sampling, 1, factor)
    times = (0.0,)
    return Frames(
        pixels_T3HW=pixels_T3HW,
        indices=(0,),
        times=times,
        second_per_grid=0.0,
        digest=_digest(pixels_T3HW, times),
        kind="image",
        source_size=source_size,
        duration=None,
        total_frames=1,
        fps=0.0,
        backend="pil",
        repeated=False,
        clamped=False,
    )


def _to_rgb(image: Image.Image) -> Image.Image:
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    white = Image.new("RGBA", layered.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layered).convert("RGB")


def _resized(
    path: Path, images: Iterable[NDArray[np.uint8]], sampling: FrameSampling, count: int, factor: int
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Frames resized as they arrive, and the (height, width) of the first before that."""
    waiting: list[NDArray[np.uint8]] = []
    done: list[torch.Tensor] = []
    source_size, size = (0, 0), (0, 0)
    for image_HW3 in images:
        if source_size == (0, 0):
            source_size = (image_HW3.shape[0], image_HW3.shape[1])
            try:
                budget = sampling.frame_budget(count) if count > 1 else sampling.max_pixels
                size = smart_resize(*source_size, factor, sampling.min_pixels, budget)
            except ValueError as error:
                raise MediaError(path, "aspect_ratio", str(error)) from error
        if waiting and image_HW3.shape != waiting[0].shape or len(waiting) == RESIZE_BATCH:
            done.append(resize_frames(_stack(waiting), size))
            waiting = []
        waiting.append(image_HW3)
    done.append(resize_frames(_stack(waiting), size))
    assert size[0] % factor == 0 and size[1] % factor == 0, "height and width are multiples of the model's factor"
    return torch.cat(done) if len(done) > 1 else done[0], source_size


def _stack(images: list[NDArray[np.uint8]]) -> torch.Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()


def resize_frames(pixels_T3HW: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """uint8 frames at `size` (height, width), bicubic with antialiasing, as torchvision resizes a uint8 tensor."""
    if tuple(pixels_T3HW.shape[-2:]) == tuple(size):
        return pixels_T3HW
    resized = torch.nn.functional.interpolate(
        pixels_T3HW.float(), size=size, mode="bicubic", align_corners=False, antialias=True
    )
    return resized.clamp_(0, 255).round_().to(torch.uint8)


def _digest(pixels_T3HW: torch.Tensor, times: Sequence[float]) -> str:
    content = hashlib.blake2b(digest_size=16)
    content.update(repr((tuple(pixels_T3HW.shape), tuple(times))).encode())
    content.update(pixels_T3HW.contiguous().numpy().tobytes())
    return content.hexdigest()
