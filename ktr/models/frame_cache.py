"""Decoded media kept in memory, so that a row met again is not decoded again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ktr.data.media import Frames
from ktr.data.rows import Media


class FrameCache:
    """Least recently used decoded media, within a bound on pixel bytes. Safe to share between threads."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._frames: OrderedDict[Media, Frames] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, media: Media) -> Frames | None:
        with self._lock:
            frames = self._frames.get(media)
            if frames is not None:
                self._frames.move_to_end(media)
            return frames

    def put(self, media: Media, frames: Frames) -> None:
        """Keeps `frames`, dropping the oldest entries; media larger than the whole bound are not kept."""
        size = frames.pixels_T3HW.nbytes
        with self._lock:
            if size > self.max_bytes or media in self._frames:
                return
            self._frames[media] = frames
            self._bytes += size
            while self._bytes > self.max_bytes:
                _, dropped = self._frames.popitem(last=False)
                self._bytes -= dropped.pixels_T3HW.nbytes
