"""Each view changes exactly what it says, and says when it changes nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from ktr.data.paths import MediaError
from ktr.evaluation.views import encode_view, middle_frame, shuffled_order


def values(viewed) -> list[int]:
    return viewed.prompt.frames.pixels_T3HW[:, 0, 0, 0].tolist()


def test_full_view_shows_all_frames_in_order(encoder, row):
    viewed = encode_view(encoder, row("a"), "full")
    assert viewed.changed
    assert values(viewed) == list(range(8))
    assert viewed.shown == tuple(range(0, 80, 10))


def test_shuffled_view_moves_pixels_and_keeps_times(encoder, row):
    viewed = encode_view(encoder, row("a"), "shuffled", seed=1)
    assert viewed.changed
    assert values(viewed) != list(range(8))
    assert sorted(values(viewed)) == list(range(8))
    assert viewed.shown == tuple(10 * value for value in values(viewed))
    assert viewed.prompt.frames.times == encode_view(encoder, row("a"), "full").prompt.frames.times
    assert values(encode_view(encoder, row("a"), "shuffled", seed=1)) == values(viewed)


def test_patch_granularity_keeps_pairs_together(encoder, row):
    for seed in range(20):
        shown = values(encode_view(encoder, row("a"), "shuffled", seed=seed, granularity="patch"))
        pairs = [(shown[i], shown[i + 1]) for i in range(0, 8, 2)]
        assert sorted(pairs) == [(0, 1), (2, 3), (4, 5), (6, 7)]
        assert pairs != sorted(pairs)


def test_orders_are_uniform_over_all_but_the_identity():
    found = Counter(tuple(shuffled_order(4, seed=0, row_id=str(i))) for i in range(4600))
    assert len(found) == 23
    assert (0, 1, 2, 3) not in found
    assert all(140 < count < 270 for count in found.values())  # 200 each, 14 standard deviation


def test_orders_differ_between_rows_and_seeds():
    orders = {tuple(shuffled_order(16, seed=seed, row_id=row_id)) for seed in range(5) for row_id in "abcde"}
    assert len(orders) == 25


@pytest.mark.parametrize("path", ["short.mp4", "picture.png", ""])
def test_rows_without_frame_order_stay_as_they_are(encoder, row, path):
    viewed = encode_view(encoder, row("a", path=path), "shuffled")
    assert not viewed.changed
    assert viewed.prompt.modality == row("a", path=path).modality


def test_no_video_reads_no_media(encoder, row):
    viewed = encode_view(encoder, row("a", path="missing.mp4"), "no_video")
    assert viewed.changed
    assert viewed.prompt.frames is None
    assert viewed.shown == ()
    assert encoder.loaded == []
    assert not encode_view(encoder, row("a", path=""), "no_video").changed


def test_one_frame_is_the_middle_one_repeated_and_marked(encoder, row, frames):
    viewed = encode_view(encoder, row("a"), "one_frame")
    shown = viewed.prompt.frames
    assert viewed.changed
    assert values(viewed) == [4, 4]
    assert viewed.shown == (40, 40)
    assert shown.times == (2.0, 2.0)
    assert shown.repeated
    assert shown.digest not in (frames().digest, middle_frame(frames(10)).digest)
    assert not encode_view(encoder, row("a", path="picture.png"), "one_frame").changed


def test_unreadable_media_and_unknown_views_are_errors(encoder, row):
    with pytest.raises(MediaError, match="missing"):
        encode_view(encoder, row("a", path="missing.mp4"), "full")
    with pytest.raises(ValueError, match="one_frame"):
        encode_view(encoder, row("a"), "backwards")
