import logging

import numpy as np
import pytest
import torch

from ktr.data.sampling import FrameSampling, choose_indices, clip_span, even_indices, frame_interval, smart_resize

STEADY = np.arange(570) / 30.0


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"fps": 1.0, "nframes": 4}, ("fps", "nframes")),
        ({}, ("fps", "nframes")),
        ({"nframes": 1}, ("nframes",)),
        ({"nframes": 0}, ("nframes",)),
        ({"fps": 0.0}, ("fps",)),
        ({"fps": float("nan")}, ("fps",)),
        ({"fps": 1.0, "min_frames": 20, "max_frames": 8}, ("min_frames", "max_frames")),
        ({"fps": 1.0, "min_frames": 5, "max_frames": 5}, ("min_frames", "max_frames")),
        ({"nframes": 4, "min_pixels": 9, "max_pixels": 8}, ("min_pixels", "max_pixels")),
        ({"nframes": 4, "total_pixels": 8}, ("total_pixels", "min_pixels")),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, keys):
    with pytest.raises(ValueError) as caught:
        FrameSampling(**settings)
    assert all(key in str(caught.value) for key in keys)


@pytest.mark.parametrize(
    ("settings", "available", "seconds", "expected"),
    [
        ({"nframes": 16}, 9, 0.9, (8, True)),
        ({"nframes": 32}, 31, 1.0, (30, True)),
        ({"nframes": 16}, 1, 0.1, (2, True)),
        ({"nframes": 16}, 16, 1.0, (16, False)),
        ({"nframes": 15}, 100, 10.0, (16, False)),
        ({"fps": 1.0}, 12, 0.4, (4, False)),
        ({"fps": 1.0, "min_frames": 2}, 4, 0.4, (2, False)),
        ({"fps": 1.0}, 3, 0.1, (2, True)),
        ({"fps": 2.0, "max_frames": 7}, 600, 20.0, (6, False)),
        ({"fps": 60.0}, 30, 1.0, (30, True)),
        ({"fps": 2.0}, 570, 18.9999999999, (38, False)),
    ],
)
def test_frame_count(settings, available, seconds, expected):
    assert FrameSampling(**settings).frame_count(available, seconds) == expected


def test_counts_equal_those_of_qwen_vl_utils():
    vision_process = pytest.importorskip("qwen_vl_utils.vision_process")
    logging.getLogger(vision_process.__name__).setLevel(logging.ERROR)
    for total in (4, 9, 31, 100, 491, 570, 3001):
        for rate in (8.0, 22.29, 25.0, 29.97, 30.0):
            for fps in (0.5, 1.0, 2.0, 4.0):
                expected = vision_process.smart_nframes({"fps": fps}, total_frames=total, video_fps=rate)
                assert FrameSampling(fps=fps).frame_count(total, total / rate)[0] == expected, (total, rate, fps)


def test_indices_equal_torch_linspace():
    generator = np.random.default_rng(0)
    for last in [1, 2, 3, 7, 490, 569, *generator.integers(1, 20000, 200)]:
        for count in (2, 4, 8, 16, 64, 192):
            expected = torch.linspace(5, 5 + int(last), count).round().long().tolist()
            assert even_indices(5, 5 + int(last), count) == expected


def test_a_steady_rate_is_sampled_by_number_even_with_rounded_times():
    rounded_to_ms = np.round(STEADY, 3)
    assert choose_indices(rounded_to_ms, 0, 569, 16) == even_indices(0, 569, 16)


def test_a_variable_rate_is_sampled_evenly_in_time():
    times = np.concatenate([np.arange(10) * 0.1, 1.0 + np.arange(10)])
    indices = choose_indices(times, 0, 19, 8)
    assert indices == [0, 10, 12, 13, 15, 16, 18, 19]
    assert np.abs(times[indices] - np.linspace(0, 10, 8)).max() <= 0.5


def test_clip_span():
    times = np.arange(60) / 10
    assert clip_span(times, None, None) == (0, 59)
    assert clip_span(times, 2.0, 3.0) == (20, 30)
    assert clip_span(times, 2.04, 2.06) == (20, 20)
    assert clip_span(times, 5.95, None) == (59, 59)
    assert clip_span(times, 3.0, 99.0) == (30, 59)
    with pytest.raises(ValueError, match="start 20"):
        clip_span(times, 20.0, None)


def test_interval_of_a_single_frame_is_that_of_the_rate():
    assert frame_interval(np.array([0.0]), 25.0) == 0.04
    assert frame_interval(np.array([0.0]), 0.0) == 0.0


def test_sizes_equal_those_of_qwen_vl_utils():
    vision_process = pytest.importorskip("qwen_vl_utils.vision_process")
    generator = np.random.default_rng(0)
    for height, width in generator.integers(16, 2200, (300, 2)):
        for factor in (28, 32):
            expected = vision_process.smart_resize(int(height), int(width), factor, 4 * 784, 128 * 784)
            if min(expected) == 0:
                continue
            assert smart_resize(int(height), int(width), factor, 4 * 784, 128 * 784) == expected


@pytest.mark.parametrize("factor", [28, 32])
def test_every_size_is_divisible_and_never_zero(factor):
    for height, width in [(16, 16), (2160, 3840), (8, 1600), (1600, 8), (1, 1), (1280, 720)]:
        new_height, new_width = smart_resize(height, width, factor, 4 * 784, 128 * 784)
        assert new_height % factor == new_width % factor == 0
        assert min(new_height, new_width) >= factor


def test_an_extreme_shape_is_refused():
    with pytest.raises(ValueError, match="2048x8"):
        smart_resize(8, 2048, 28, 3136, 100352)


def test_frame_budget_shares_the_total():
    sampling = FrameSampling(fps=2.0, min_pixels=4 * 784, max_pixels=128 * 784, total_pixels=12288 * 784)
    assert sampling.frame_budget(16) == 128 * 784
    assert sampling.frame_budget(384) == 64 * 784
    assert FrameSampling(nframes=64, total_pixels=64 * 784).frame_budget(64) == int(4 * 784 * 1.05)
