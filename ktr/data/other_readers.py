"""Reading a video with torchcodec or decord; see `ktr.data.decoders.VideoReader`.

Both are second choices: neither tells a damaged frame from a sound one, nor a damaged file from one it cannot decode,
so `decoder=pyav` is the strict reader.
Shapes: N frames in the file, H height, W width (after rotation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktr.data.paths import MediaError
from ktr.data.sampling import UNEVEN_SHARE, frame_interval

BATCH = 16
"""Frames torchcodec decodes at a time."""
LATE_START = 1e-3
"""Seconds; of a video stream that starts later than this, decord drops the first frames and repeats the last."""


class DecordReader:
    """One opened file, read by decord, which applies quarter turns itself.

    Frames are read one by one from the start, because decord's seeking and skipping give other frames than asked for
    in some files. Files that decord would number wrongly are refused; seeing that the stream starts late takes PyAV.
    """

    def __init__(self, path: Path) -> None:
        import decord

        decord.logging.set_level(decord.logging.QUIET)
        self.path = path
        try:
            self._reader = decord.VideoReader(str(path), num_threads=1)
            count = len(self._reader)
            self.rate = float(self._reader.get_avg_fps())
            spans_N2 = np.asarray(self._reader.get_frame_timestamp(range(count)), dtype=np.float64).reshape(count, 2)
        except (decord.DECORDError, RuntimeError) as error:
            raise MediaError(path, "undecodable", f"decord cannot open it ({_first_line(error)})") from error
        if count == 0:
            raise MediaError(path, "undecodable", "decord finds no frame")
        self.times_N = spans_N2[:, 0]
        if (np.diff(self.times_N) <= 0).any():
            raise MediaError(path, "undecodable", "decord finds no increasing presentation times")
        if _starts_late(path):
            raise MediaError(path, "undecodable", "decord skips the first frames of a file that does not start at 0 s")
        self._next = 0

    @property
    def duration(self) -> float:
        return float(self.times_N[-1]) + frame_interval(self.times_N, self.rate)

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        import decord

        if indices and indices[0] < self._next:
            self._reader.seek(0)
            self._next = 0
        image_HW3: NDArray[np.uint8] | None = None
        for index in indices:
            if image_HW3 is None or index >= self._next:
                try:
                    for _ in range(index + 1 - self._next):
                        frame = self._reader.next()
                    image_HW3 = _as_array(frame)
                except (decord.DECORDError, RuntimeError, StopIteration) as error:
                    raise MediaError(self.path, "undecodable", f"frame {index}: {_first_line(error)}") from error
                self._next = index + 1
            if image_HW3 is None or image_HW3.shape[2] != 3:
                raise MediaError(self.path, "undecodable", "decord does not unpack frames of this width")
            yield image_HW3

    def recount(self) -> bool:
        return False

    def close(self) -> None:
        del self._reader


class TorchcodecReader:
    """One opened file, read by torchcodec, which counts the stored frames when it opens a file (`exact`)."""

    def __init__(self, path: Path) -> None:
        from torchcodec.decoders import VideoDecoder

        self.path = path
        try:
            self._decoder = VideoDecoder(str(path), dimension_order="NHWC", seek_mode="exact", num_ffmpeg_threads=1)
            count = self._decoder.metadata.num_frames or 0
        except (RuntimeError, ValueError, OSError) as error:
            raise MediaError(path, "undecodable", f"torchcodec cannot open it ({_first_line(error)})") from error
        if count == 0:
            raise MediaError(path, "undecodable", "torchcodec finds no frame")
        self.rate = float(self._decoder.metadata.average_fps or 0.0)
        self.times_N = self._all_times(count)

    def _all_times(self, count: int) -> NDArray[np.float64]:
        """Presentation times; torchcodec gives them only with decoded frames, so even ones are checked at a sample."""
        probe = sorted({round(share * (count - 1) / 16) for share in range(17)})
        probed = self._times_of(probe)
        interval = (probed[-1] - probed[0]) / max(count - 1, 1)
        even = probed[0] + interval * np.asarray(probe)
        if np.abs(probed - even).max() <= UNEVEN_SHARE * interval:
            return interval * np.arange(count, dtype=np.float64)
        times = np.concatenate(
            [self._times_of(range(begin, min(begin + BATCH, count))) for begin in range(0, count, BATCH)]
        )
        return times - times[0]

    def _times_of(self, indices: Sequence[int]) -> NDArray[np.float64]:
        try:
            batch = self._decoder.get_frames_at(list(indices))
        except (RuntimeError, IndexError) as error:
            raise MediaError(self.path, "undecodable", f"frames {list(indices)}: {_first_line(error)}") from error
        return batch.pts_seconds.cpu().numpy().astype(np.float64)

    @property
    def duration(self) -> float:
        return float(self.times_N[-1]) + frame_interval(self.times_N, self.rate)

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        for begin in range(0, len(indices), BATCH):
            part = list(indices[begin : begin + BATCH])
            try:
                batch = self._decoder.get_frames_at(part)
            except (RuntimeError, IndexError) as error:
                raise MediaError(self.path, "undecodable", f"frames {part}: {_first_line(error)}") from error
            yield from batch.data.cpu().numpy()

    def recount(self) -> bool:
        return False

    def close(self) -> None:
        del self._decoder


def _starts_late(path: Path) -> bool:
    try:
        import av
    except ImportError:
        return False
    with av.open(str(path), metadata_errors="ignore") as container:
        stream = container.streams.video[0]
        return bool(stream.start_time and stream.time_base and stream.start_time * stream.time_base > LATE_START)


def _as_array(frame: Any) -> NDArray[np.uint8]:
    """A decord frame as an array: `decord.bridge.set_bridge` makes it a tensor of some library, for the process."""
    return np.asarray(frame.asnumpy() if hasattr(frame, "asnumpy") else frame)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
