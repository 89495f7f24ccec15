"""Rendering of toy scenes and their encoding to H.264 in mp4.

Shapes: T frames, H height, W width in pixels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from ktr.data.toy_scenes import COLORS, FRAME_SIZE, NUM_STATES, QUARTER_GREYS, SHAPES, Scene

FRAMES_PER_STATE = 2
NUM_FRAMES = NUM_STATES * FRAMES_PER_STATE
FRAME_RATE = 4
DURATION = NUM_FRAMES / FRAME_RATE
"""Seconds of a clip."""
# Constant quality: low enough that the flat colours come back within a few levels.
QUALITY = {"crf": "10", "preset": "ultrafast", "tune": "zerolatency"}


def render(scene: Scene) -> np.ndarray:
    """The clip as ``uint8`` pixels of shape (T, H, W, 3). Each picture is held for two frames: one temporal patch."""
    pictures = np.empty((NUM_STATES, FRAME_SIZE, FRAME_SIZE, 3), dtype=np.uint8)
    half = FRAME_SIZE // 2
    for quarter, grey in enumerate(QUARTER_GREYS):
        top, left = half * (quarter // 2), half * (quarter % 2)
        pictures[:, top : top + half, left : left + half] = grey + scene.background
    for picture, state in zip(pictures, scene.states, strict=True):
        for blob in state:
            width, height = SHAPES[blob.shape]
            picture[blob.y : blob.y + height, blob.x : blob.x + width] = COLORS[blob.color]
    return pictures.repeat(FRAMES_PER_STATE, axis=0)


def encode(pixels_THW3: np.ndarray, path: Path) -> None:
    """Write frames to an mp4 file. The file appears at ``path`` complete or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with av.open(str(unfinished), "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=FRAME_RATE, options=QUALITY)
            stream.height, stream.width = pixels_THW3.shape[1:3]
            stream.pix_fmt = "yuv420p"
            stream.thread_count = 1
            stream.time_base = Fraction(1, FRAME_RATE)
            for picture in pixels_THW3:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode(None))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_clips(scenes: Mapping[str, Scene], root: Path) -> None:
    """Render and encode each scene to the file under ``root`` named by its key. Files that exist are kept."""
    for name, scene in scenes.items():
        path = root / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            encode(render(scene), path)
