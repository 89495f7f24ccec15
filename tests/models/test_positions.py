from __future__ import annotations

import pytest
import torch

from ktr.models.positions import VisionSpan, qwen2_5_vl_positions, qwen2_vl_positions, qwen3_vl_positions

TEXT, IMAGE, VIDEO = 5, 8, 9
PADS = (IMAGE, VIDEO)


def prompt(*parts: tuple[int, int]) -> torch.Tensor:
    """Ids from (token, times) pairs."""
    return torch.tensor([token for token, times in parts for _ in range(times)])


def test_qwen2_5_golden_long_video() -> None:
    ids = prompt((TEXT, 15), (VIDEO, 84 * 12 * 16), (TEXT, 3))
    span = VisionSpan(VIDEO, (84, 24, 32), second_per_grid=1.0)
    positions = qwen2_5_vl_positions(ids, [span], PADS, merge_size=2, tokens_per_second=4)
    video = positions[:, 15:-3].reshape(3, 84, 12, 16)
    assert positions[:, :15].tolist() == [list(range(15))] * 3
    assert video[0, :, 0, 0].tolist() == list(range(15, 348, 4))
    assert (video[0].amin(), video[0].amax()) == (15, 347)
    assert video[1, 0, :, 0].tolist() == list(range(15, 27))
    assert video[2, 0, 0].tolist() == list(range(15, 31))
    assert positions[:, -3:].tolist() == [[348, 349, 350]] * 3


def test_qwen2_golden_counts_grids_not_seconds() -> None:
    ids = prompt((TEXT, 15), (VIDEO, 84 * 12 * 16), (TEXT, 2))
    span = VisionSpan(VIDEO, (84, 24, 32), second_per_grid=1.0)
    positions = qwen2_vl_positions(ids, [span], PADS, merge_size=2)
    assert positions[0, 15:-2].reshape(84, -1)[:, 0].tolist() == list(range(15, 99))
    assert positions[:, -2:].tolist() == [[99, 100]] * 3


def test_text_goes_on_after_space_where_space_is_larger_than_time() -> None:
    ids = prompt((TEXT, 2), (VIDEO, 2 * 2 * 6), (TEXT, 1))
    span = VisionSpan(VIDEO, (2, 4, 12), second_per_grid=0.5)
    positions = qwen2_5_vl_positions(ids, [span], PADS, merge_size=2, tokens_per_second=2)
    assert positions[:, -1].tolist() == [8, 8, 8]


@pytest.mark.parametrize(
    ("second_per_grid", "tokens_per_second", "ticks"),
    [
        (0.4, 2, [0, 0, 1, 2, 3, 4]),
        (0.5, 4, [0, 2, 4, 6, 8, 10]),
        (1 / 3, 2, [0, 0, 1, 2, 2, 3]),
        (2 / 29.97, 25, [0, 1, 3, 5, 6, 8]),
        (5.0, 4, [0, 20, 40, 60, 80, 100]),
    ],
)
def test_qwen2_5_truncates_fractional_ticks(second_per_grid: float, tokens_per_second: float, ticks: list[int]) -> None:
    ids = prompt((VIDEO, 6))
    span = VisionSpan(VIDEO, (6, 2, 2), second_per_grid)
    positions = qwen2_5_vl_positions(ids, [span], PADS, merge_size=2, tokens_per_second=tokens_per_second)
    assert positions[0].tolist() == ticks


def test_qwen3_golden_time_is_constant_in_each_grid() -> None:
    ids = prompt((TEXT, 3), (VIDEO, 4), (TEXT, 2), (VIDEO, 4), (TEXT, 2))
    positions = qwen3_vl_positions(ids, [VisionSpan(VIDEO, (2, 4, 4), 1.0)], PADS, merge_size=2)
    assert positions.tolist() == [
        [0, 1, 2, 3, 3, 3, 3, 5, 6, 7, 7, 7, 7, 9, 10],
        [0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 7, 8, 8, 9, 10],
        [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10],
    ]


def test_several_spans_of_both_kinds_even_side_by_side() -> None:
    ids = prompt((TEXT, 1), (IMAGE, 2), (IMAGE, 4), (TEXT, 1), (VIDEO, 3), (TEXT, 1))
    spans = [VisionSpan(IMAGE, (1, 2, 4)), VisionSpan(IMAGE, (1, 4, 4)), VisionSpan(VIDEO, (3, 2, 2), 1.0)]
    positions = qwen2_5_vl_positions(ids, spans, PADS, merge_size=2, tokens_per_second=2)
    assert positions.tolist() == [
        [0, 1, 1, 3, 3, 3, 3, 5, 6, 8, 10, 11],
        [0, 1, 1, 3, 3, 4, 4, 5, 6, 6, 6, 11],
        [0, 1, 2, 3, 4, 3, 4, 5, 6, 6, 6, 11],
    ]


def test_text_alone_is_counted() -> None:
    for rule in (qwen2_vl_positions, qwen3_vl_positions):
        assert rule(prompt((TEXT, 4)), [], PADS, merge_size=2).tolist() == [[0, 1, 2, 3]] * 3


@pytest.mark.parametrize(
    ("ids", "spans"),
    [
        (prompt((TEXT, 1), (VIDEO, 3)), [VisionSpan(VIDEO, (1, 4, 4))]),
        (prompt((TEXT, 1), (VIDEO, 5)), [VisionSpan(VIDEO, (1, 4, 4))]),
        (prompt((VIDEO, 2), (TEXT, 1), (VIDEO, 2)), [VisionSpan(VIDEO, (1, 4, 4))]),
        (prompt((IMAGE, 4)), [VisionSpan(VIDEO, (1, 4, 4))]),
        (prompt((IMAGE, 4)), []),
    ],
)
def test_prompt_that_does_not_hold_its_spans_is_refused(ids: torch.Tensor, spans: list[VisionSpan]) -> None:
    with pytest.raises(ValueError, match="visual tokens"):
        qwen2_vl_positions(ids, spans, PADS, merge_size=2)


def test_qwen2_5_video_without_seconds_is_refused() -> None:
    with pytest.raises(ValueError, match="second_per_grid"):
        qwen2_5_vl_positions(
            prompt((VIDEO, 2)), [VisionSpan(VIDEO, (2, 2, 2))], PADS, merge_size=2, tokens_per_second=2
        )
