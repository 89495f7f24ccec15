"""Video decoders behind one function: PyAV, torchcodec and decord, in this order.

`auto` uses the first decoder that works here for every file of a run; the next one is asked only for a file the first
cannot decode at all. A decoder "works" when it decoded the small clip of `ktr.data.probe_clip`: being installed is not
enough. PyAV comes first because it alone tells damaged frames from sound ones and knows every presentation time
without decoding. Every decoder gives upright RGB frames and presentation times counted from the first frame.

Shapes: N frames in the file, H height, W width (after rotation).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ktr.data.paths import MediaError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

ORDER = ("pyav", "torchcodec", "decord")
CANNOT_DECODE = ("undecodable", "no_video")
"""Reasons after which another decoder may be asked. A damaged or truncated file is damaged for all of them."""


class VideoReader(Protocol):
    """An opened video. `times_N` are seconds from the first frame, increasing; `rate` is the average frame rate."""

    times_N: NDArray[np.float64]
    rate: float

    @property
    def duration(self) -> float:
        """Seconds from the first frame's start to the last frame's end."""
        ...

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        """Upright RGB frames (H, W, 3) for non-decreasing frame numbers, one at a time.

        Raises:
            MediaError: `damaged` when a frame that was asked for cannot be decoded; a neighbour is never given instead.
        """
        ...

    def recount(self) -> bool:
        """Decode the whole file to correct `times_N`; True if the frames differ from what the container said."""
        ...

    def close(self) -> None: ...


def _open_pyav(path: Path) -> VideoReader:
    from ktr.data.pyav_reader import PyAVReader

    return PyAVReader(path)


def _open_torchcodec(path: Path) -> VideoReader:
    from ktr.data.other_readers import TorchcodecReader

    return TorchcodecReader(path)


def _open_decord(path: Path) -> VideoReader:
    from ktr.data.other_readers import DecordReader

    return DecordReader(path)


OPENERS: dict[str, Callable[[Path], VideoReader]] = {
    "pyav": _open_pyav,
    "torchcodec": _open_torchcodec,
    "decord": _open_decord,
}


@cache
def why_unavailable(name: str) -> str | None:
    """None when the decoder decodes the probe clip right on this machine, else the first line of what went wrong."""
    from ktr.data.probe_clip import BRIGHTNESS, clip_bytes

    with tempfile.TemporaryDirectory(prefix="ktr-probe-") as folder:
        path = Path(folder) / "probe.mp4"
        path.write_bytes(clip_bytes())
        try:
            reader = OPENERS[name](path)
            frames = list(reader.read(range(len(reader.times_N))))
            reader.close()
        except (ImportError, OSError, RuntimeError, MediaError) as error:
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no text'}"
    means = [float(frame.mean()) for frame in frames]
    if len(means) != len(BRIGHTNESS) or not np.allclose(means, BRIGHTNESS, atol=12):
        return f"the probe clip was decoded to frames of brightness {means} instead of {list(BRIGHTNESS)}"
    return None


def available_decoders() -> list[str]:
    """Decoders that work here, in the order `auto` asks them."""
    return [name for name in ORDER if why_unavailable(name) is None]


def decoder_order(decoder: str) -> list[str]:
    """Decoders to ask, in order, for the setting `auto` or one decoder's name.

    Raises:
        ValueError: for an unknown name.
        MediaError: `no_backend` when none of them works here, with what each one said.
    """
    if decoder != "auto" and decoder not in ORDER:
        raise ValueError(f"decoder={decoder!r} is unknown; choose auto, {', '.join(ORDER)}")
    names = list(ORDER) if decoder == "auto" else [decoder]
    working = [name for name in names if why_unavailable(name) is None]
    if not working:
        said = "; ".join(f"{name}: {why_unavailable(name)}" for name in names)
        raise MediaError(decoder, "no_backend", f"no video decoder works here ({said}); install `av`")
    return working


def with_decoder(path: Path, decoder: str, action: Callable[[VideoReader, str], Result]) -> Result:
    """What `action(reader, decoder_name)` gives with the first decoder that can decode the file.

    Raises:
        MediaError: the first decoder's error when none can decode the file; any other error of `action` at once.
    """
    first_error: MediaError | None = None
    for name in decoder_order(decoder):
        try:
            reader = OPENERS[name](path)
            try:
                result = action(reader, name)
            finally:
                reader.close()
        except MediaError as error:
            if error.reason not in CANNOT_DECODE:
                raise
            first_error = first_error or error
            continue
        if first_error is not None:
            logger.warning("%s is read by %s, because: %s", path, name, first_error)
        return result
    assert first_error is not None
    raise first_error
