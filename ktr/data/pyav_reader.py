"""Reading a video with PyAV: packets are listed first, then only the parts that hold wanted frames are decoded.

Shapes: N frames in the file, H height, W width (after rotation).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from ktr.data.paths import MediaError
from ktr.data.sampling import frame_interval

KEEP_PACKETS_BYTES = 32 * 2**20
"""Files up to this size are read from disk once; larger ones are sought in again."""
THREADED_PIXELS = 64 * 2**20
"""Videos with more pixels than this in all frames are decoded with several threads."""
MISSING_SHARE = 0.02
"""A container that declares more frames than this share above what it stores is cut off."""


class FramesMissing(Exception):
    """The packets did not give the frames that were asked for."""


@dataclass(frozen=True)
class _Packet:
    pts: int | None
    key: bool
    data: av.Packet | None


class PyAVReader:
    """One opened file; see `ktr.data.decoders.VideoReader`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reformatter = VideoReformatter()
        try:
            self._container: InputContainer = av.open(str(path), metadata_errors="ignore")
        except (av.FFmpegError, OSError) as error:
            raise MediaError(path, "undecodable", f"not a video PyAV can open ({error})") from error
        try:
            self._open_stream()
        except MediaError:
            self._container.close()
            raise

    def _open_stream(self) -> None:
        if not self._container.streams.video:
            raise MediaError(self.path, "no_video", "the file has no video stream")
        self._stream = self._container.streams.video[0]
        if self._stream.codec_context is None:
            raise MediaError(self.path, "undecodable", "PyAV has no decoder for the video's codec")
        rate = self._stream.average_rate or self._stream.guessed_rate
        self.rate = float(rate) if rate else 0.0
        self._unit = float(self._stream.time_base) if self._stream.time_base else 0.0
        self._list_packets()
        self._exact, self._decoded = True, False
        self._keys = [number for number, packet in enumerate(self._packets) if packet.key]
        self._key_pts = [self._packets[number].pts or 0 for number in self._keys]
        shown = [packet.pts for packet in self._packets]
        if not shown or any(pts is None for pts in shown) or len(set(shown)) < len(shown):
            self.recount()
        else:
            self._set_times(sorted(pts for pts in shown if pts is not None))
        self._check_declared()
        context = self._stream.codec_context
        if context.width * context.height * len(self._pts_N) > THREADED_PIXELS and not context.is_open:
            context.thread_type = "AUTO"

    def _list_packets(self) -> None:
        """All packets from the first key frame on, without decoding; small files keep their data."""
        keep = self.path.stat().st_size <= KEEP_PACKETS_BYTES
        self._packets: list[_Packet] = []
        try:
            for packet in self._stored(self._container, self._stream):
                self._packets.append(_Packet(packet.pts, packet.is_keyframe, packet if keep else None))
        except av.FFmpegError as error:
            raise MediaError(self.path, "truncated", f"reading stops after {len(self._packets)} frames") from error

    def _check_declared(self) -> None:
        declared, stored = self._stream.frames, len(self._pts_N)
        if stored == 0:
            raise MediaError(self.path, "undecodable", "the video stream holds no frame")
        if declared - stored > max(1.0, MISSING_SHARE * declared):
            raise MediaError(self.path, "truncated", f"{declared} frames are declared, {stored} are stored")

    def _set_times(self, pts: list[int]) -> None:
        self._pts_N = pts
        self.times_N = (np.asarray(pts, dtype=np.float64) - (pts[0] if pts else 0)) * self._unit
        if self.rate <= 0 and len(pts) > 1:
            self.rate = 1.0 / frame_interval(self.times_N, 0.0)

    @property
    def duration(self) -> float:
        return float(self.times_N[-1]) + frame_interval(self.times_N, self.rate)

    def read(self, indices: Sequence[int]) -> Iterator[NDArray[np.uint8]]:
        wanted = [self._pts_N[index] for index in indices]
        assert all(a <= b for a, b in zip(wanted, wanted[1:], strict=False)), "frames are read in order"
        unique = sorted(set(wanted))
        frames = self._decode(unique)
        position = 0
        for pts in unique:
            try:
                frame = next(frames)
            except (FramesMissing, av.FFmpegError) as error:
                detail = f"frame {self._pts_N.index(pts)} of {len(self._pts_N)} cannot be decoded ({error})"
                raise MediaError(self.path, "damaged" if self._decoded else "undecodable", detail) from error
            while position < len(wanted) and wanted[position] == pts:
                yield frame
                position += 1

    def _decode(self, wanted: list[int]) -> Iterator[NDArray[np.uint8]]:
        """Frames at the given times, starting each time at the last key frame before the next wanted one."""
        left = list(reversed(wanted))
        while left:
            start = self._key_before(left[-1])
            for number, frame in self._frames_from(start):
                if frame.is_corrupt:
                    raise FramesMissing("the decoder marks it, or one it depends on, as corrupt")
                if frame.pts is None or frame.pts < left[-1]:
                    continue
                if frame.pts > left[-1]:
                    raise FramesMissing(f"the decoder skipped from time {left[-1]} to {frame.pts}")
                left.pop()
                yield self._upright(frame)
                if not left:
                    return
                if self._key_before(left[-1]) > number:
                    break
            else:
                raise FramesMissing("the stream ends before it")

    def _key_before(self, pts: int) -> int:
        """Number of the last packet from which the frame at `pts` can be decoded."""
        return self._keys[max(bisect_right(self._key_pts, pts) - 1, 0)] if self._exact else 0

    def _frames_from(self, start: int) -> Iterator[tuple[int, VideoFrame]]:
        """Decoded frames with the number of the packet fed last, from packet `start` to the end of the stream."""
        context = self._stream.codec_context
        context.flush_buffers()
        number, shown = start, 0
        for number, packet in enumerate(chain(self._data_from(start), [None]), start):
            for frame in context.decode(packet):
                self._decoded = True
                if frame.pts is None and not self._exact:
                    frame.pts = self._pts_by_rate(shown)
                shown += 1
                yield number, frame

    def _data_from(self, start: int) -> Iterator[av.Packet]:
        if self._packets and self._packets[0].data is not None:
            for packet in self._packets[start:]:
                assert packet.data is not None
                yield packet.data
            return
        if start > 0 and self._seek(self._packets[start]):
            waiting = True
            for stored in self._stored(self._container, self._stream):
                waiting = waiting and not (stored.is_keyframe and stored.pts == self._packets[start].pts)
                if not waiting:
                    yield stored
            if not waiting:
                return
        with av.open(str(self.path), metadata_errors="ignore") as again:
            yield from islice(self._stored(again, again.streams.video[0]), start, None)

    def _seek(self, packet: _Packet) -> bool:
        """Whether the file was set back to a key packet or one before it; not every format can."""
        if packet.pts is None:
            return False
        try:
            self._container.seek(packet.pts, stream=self._stream, backward=True)
        except av.FFmpegError:
            return False
        return True

    @staticmethod
    def _stored(container: InputContainer, stream: VideoStream) -> Iterator[av.Packet]:
        """Packets that hold a shown frame, from the first key packet on (or the position sought)."""
        begun = False
        for packet in container.demux(stream):
            begun = begun or packet.is_keyframe
            if begun and packet.size > 0 and not packet.is_discard:
                yield packet

    def recount(self) -> bool:
        before = getattr(self, "_pts_N", [])
        self._exact = False
        pts: list[int] = []
        corrupt = 0
        try:
            for _, frame in self._frames_from(0):
                corrupt += frame.is_corrupt
                assert frame.pts is not None, "frames without a time get one by the frame rate"
                pts.append(frame.pts)
        except av.FFmpegError as error:
            detail = f"decoding stops after {len(pts)} of {len(self._packets)} stored frames ({error})"
            raise MediaError(self.path, "damaged" if pts else "undecodable", detail) from error
        if any(a >= b for a, b in zip(pts, pts[1:], strict=False)):
            raise MediaError(self.path, "no_times", "the presentation times do not increase")
        if corrupt:
            raise MediaError(self.path, "damaged", f"{corrupt} of {len(pts)} frames are corrupt")
        if len(self._packets) - len(pts) > max(1.0, MISSING_SHARE * len(self._packets)):
            detail = f"of {len(self._packets)} stored frames only {len(pts)} can be decoded"
            raise MediaError(self.path, "damaged" if pts else "undecodable", detail)
        self._set_times(pts)
        return before != pts

    def _pts_by_rate(self, number: int) -> int:
        if self.rate <= 0 or self._unit <= 0:
            raise MediaError(self.path, "no_times", "the file has neither presentation times nor a frame rate")
        return round(number / self.rate / self._unit)

    def _upright(self, frame: VideoFrame) -> NDArray[np.uint8]:
        image_HW3 = self._reformatter.reformat(frame, format="rgb24").to_ndarray().astype(np.uint8, copy=False)
        turns, rest = divmod(round(frame.rotation), 90)
        if rest:
            raise MediaError(self.path, "rotation", f"a rotation by {frame.rotation} degrees is not a quarter turn")
        return np.ascontiguousarray(np.rot90(image_HW3, turns)) if turns else image_HW3

    def close(self) -> None:
        self._container.close()
