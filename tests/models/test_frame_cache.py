from __future__ import annotations

from collections.abc import Callable

from ktr.data.rows import Media
from ktr.models.frame_cache import FrameCache


def test_cache_drops_what_was_used_longest_ago(new_frames: Callable) -> None:
    clip = new_frames(28)
    cache = FrameCache(2 * clip.pixels_T3HW.nbytes)
    a, b, c = (Media("video", name) for name in "abc")
    cache.put(a, clip)
    cache.put(b, clip)
    assert cache.get(a) is clip
    cache.put(c, clip)
    assert [cache.get(media) is not None for media in (a, b, c)] == [True, False, True]
    small = FrameCache(clip.pixels_T3HW.nbytes - 1)
    small.put(a, clip)
    assert small.get(a) is None
