"""Decoded frames on disk: a video is decoded once, whatever the number of epochs, runs and ranks that read it.

The key is the file's content, the part asked about, the sampling, the model's resize factor, the decoder and the
versions of the libraries that make the pixels. Two copies of a file share an entry; an edited file gets a new one.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ktr.data.content_digest import ContentDigests
from ktr.data.disk_store import DiskStore, key_of
from ktr.data.media import Frames, FrameSampling, load_frames
from ktr.data.rows import Media

VERSION = 1
"""Raise it whenever the same settings would give other frames."""
PIXEL_MAKERS = ("av", "torchcodec", "decord", "pillow", "torch")
_TUPLES = ("indices", "times", "source_size")


class FrameStore:
    """Reads media through a `DiskStore`. Errors are not kept: a file that failed is tried again."""

    def __init__(self, store: DiskStore) -> None:
        self.store = store
        self.digests = ContentDigests(store.folder)

    def load(self, path: Path, media: Media, sampling: FrameSampling, *, factor: int, decoder: str = "auto") -> Frames:
        """What `load_frames` gives, from the store where it is there. Raises MediaError."""
        try:
            content = self.digests.of(Path(path))
        except OSError:
            return load_frames(path, media, sampling, factor=factor, decoder=decoder)  # It says what is wrong.
        key = key_of(
            "frames", VERSION, content, media.kind, media.start, media.end, asdict(sampling), factor, decoder, _makers()
        )
        found = self.store.get(key)
        if found is not None:
            meta, tensors = found
            known: dict[str, Any] = {name: tuple(value) if name in _TUPLES else value for name, value in meta.items()}
            return Frames(pixels_T3HW=tensors["pixels"], **known)
        frames = load_frames(path, media, sampling, factor=factor, decoder=decoder)
        meta = {field.name: getattr(frames, field.name) for field in fields(frames) if field.name != "pixels_T3HW"}
        self.store.put(key, meta, {"pixels": frames.pixels_T3HW})
        return frames


@cache
def _makers() -> dict[str, str]:
    found = {}
    for name in PIXEL_MAKERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
