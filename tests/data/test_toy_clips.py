from __future__ import annotations

from random import Random

import numpy as np
import pytest

from ktr.data.media import FrameSampling, load_frames
from ktr.data.rows import Media
from ktr.data.toy_clips import DURATION, FRAME_RATE, NUM_FRAMES, encode, render, write_clips
from ktr.data.toy_scenes import COLORS, FRAME_SIZE, changing_scene, moving_scene, sample_scene


def test_each_picture_is_held_for_one_temporal_patch():
    frames = render(moving_scene("block", "red", "right", 0.0))
    assert frames.shape == (NUM_FRAMES, FRAME_SIZE, FRAME_SIZE, 3) and frames.dtype == np.uint8
    assert np.array_equal(frames[0::2], frames[1::2])
    assert len({picture.tobytes() for picture in frames[::2]}) == 4


def test_shapes_are_where_the_scene_says():
    frame = render(changing_scene("block", "red", "blue", (3,)))[0]
    rows, columns = np.nonzero((frame == COLORS["red"]).all(-1))
    assert len(rows) == 24 * 24 and rows.min() >= 28 and columns.min() >= 28


def test_a_clip_reads_back_as_it_was_rendered(tmp_path):
    rng = Random(4)
    scenes = {f"clips/{index}.mp4": sample_scene(rng) for index in range(6)}
    write_clips(scenes, tmp_path)
    for name, scene in scenes.items():
        frames = load_frames(tmp_path / name, Media("video", name), FrameSampling(nframes=8, min_pixels=784), factor=28)
        assert frames.total_frames == NUM_FRAMES and frames.indices == tuple(range(NUM_FRAMES))
        assert frames.fps == pytest.approx(FRAME_RATE) and frames.second_per_grid == pytest.approx(2 / FRAME_RATE)
        pixels = frames.pixels_T3HW.permute(0, 2, 3, 1).numpy().astype(int)
        assert pixels.shape == (NUM_FRAMES, FRAME_SIZE, FRAME_SIZE, 3)
        assert np.abs(pixels - render(scene)).mean() < 4
    assert frames.duration == pytest.approx(DURATION)


def test_a_file_is_there_complete_or_not_at_all(tmp_path):
    scene = moving_scene("pole", "green", "down", 0.5)
    with pytest.raises(ValueError):
        encode(render(scene)[..., :2], tmp_path / "bad.mp4")
    assert not list(tmp_path.iterdir())


def test_files_that_are_there_are_kept(tmp_path):
    scene = moving_scene("pole", "green", "down", 0.5)
    (tmp_path / "a.mp4").write_bytes(b"kept")
    write_clips({"a.mp4": scene, "sub/b.mp4": scene}, tmp_path)
    assert (tmp_path / "a.mp4").read_bytes() == b"kept"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.mp4", "b.mp4"]


def test_the_same_scene_gives_the_same_file(tmp_path):
    scene = sample_scene(Random(0))
    for name in ("a", "b"):
        encode(render(scene), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
