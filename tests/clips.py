"""Real clips, written with PyAV: each frame shows its own number, so that a wrong frame is seen."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import torch


def numbered_frame(number: int, width: int, height: int) -> np.ndarray:
    """(H, W, 3): grey level 4 * number + 8, with a white top-left, red top-right and blue bottom-left corner."""
    image = np.full((height, width, 3), min(4 * number + 8, 250), np.uint8)
    h, w = max(height // 4, 1), max(width // 4, 1)
    image[:h, :w] = 255
    image[:h, -w:] = (250, 20, 20)
    image[-h:, :w] = (20, 20, 250)
    return image


def frame_numbers(pixels_T3HW: torch.Tensor) -> list[int]:
    """Which numbered frames these are, read from the grey centre."""
    height, width = pixels_T3HW.shape[-2:]
    centre = pixels_T3HW[:, :, height // 2 - 2 : height // 2 + 2, width // 2 - 2 : width // 2 + 2]
    return [round((float(value) - 8) / 4) for value in centre.float().mean(dim=(1, 2, 3))]


def write_clip(
    path: Path,
    frames: int = 20,
    *,
    size: tuple[int, int] = (64, 56),
    rate: int = 10,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    times: Sequence[float] | None = None,
    rotation: int = 0,
    gop: int = 8,
    options: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    format: str | None = None,
    sound_seconds: float = 0.0,
) -> Path:
    """A clip of numbered frames. `size` is (width, height); `times` (s) make the frame rate variable."""
    with av.open(str(path), "w", format=format, options=container or {}) as output:
        stream = output.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height, stream.pix_fmt = size[0], size[1], pix_fmt
        stream.codec_context.gop_size = gop
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation:
            stream.set_display_rotation(rotation)
        sound = output.add_stream("aac", rate=16000, layout="mono") if sound_seconds else None
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(numbered_frame(number, *size), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = round(times[number] * 1000), Fraction(1, 1000)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
        if sound is not None:
            silence = av.AudioFrame.from_ndarray(
                np.zeros((1, round(16000 * sound_seconds)), np.float32), format="fltp", layout="mono"
            )
            silence.sample_rate, silence.pts = 16000, 0
            output.mux(sound.encode(silence))
            output.mux(sound.encode())
    return path
