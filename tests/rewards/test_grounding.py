from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktr.rewards import score_reply
from ktr.rewards.grounding import Box, Interval, box_iou, interval_iou, parse_seconds, read_interval


def verdict_of(answer: str, gold: str, problem_type: str):
    return score_reply(f"<think>t</think><answer>{answer}</answer>", problem_type=problem_type, gold=gold)


@pytest.mark.parametrize(
    "text",
    [
        '{"time": [10, 20]}', '{"time": [10.0, 20.0], "boxes": {}}', "{'time': [10, 20]}",
        '```json\n{"time": [10, 20]}\n```',
        '{"time": ["00:10", "00:20"]}', '{"start": 10, "end": 20}', '{"time": {"start": 10, "end": 20}}',
        '{"time": "10-20"}',
        '{"time": [[10, 20]]}', "[10, 20]", "(10, 20)", "10, 20", "10 20", "10-20", "10–20", "10 to 20",
        "from 10s to 20s",
        "10s–20s", "10.0 - 20.0 seconds", "between 10 and 20 seconds", "00:10 - 00:20", "0:10-0:20",
        "00:00:10 to 00:00:20",
        "The event happens from 00:10 to 00:20.", "start: 10 s, end: 20 s", "10 sec to 20 secs", "\\boxed{[10, 20]}",
        "00:10.0-00:20.0", "10秒到20秒", "从 10 秒 到 20 秒", '[{"start": 10, "end": 20}]', '{"Time": [10, 20]}',
        '{"time": [10, 20]}; again: {"time": [10, 20]}',
        '<think>{"time": [10, 20], "boxes": {}}</think><[removed]>',
    ],
)  # fmt: skip
def test_intervals_in_many_forms(text):
    assert read_interval(text) == Interval(10.0, 20.0)


@pytest.mark.parametrize(
    ("text", "interval"),
    [("1:05-1:20", (65, 80)), ("1m5s to 1m20s", (65, 80)), ("1分5秒到1分20秒", (65, 80)),
     ("1 minute 5 seconds to 1 min 20 s", (65, 80)),
     ("01:00:00 - 01:01:00.5", (3600, 3660.5)), ("1 hour to 1 h 1 min", (3600, 3660)), ("0 to 0.5", (0, 0.5))],
)  # fmt: skip
def test_minutes_and_hours(text, interval):
    assert read_interval(text) == interval


@pytest.mark.parametrize(
    "text",
    ["", "at 15 seconds", "10, 12, 20", "20 to 10", "00:70 - 00:80", "10.5.2 to 20", '{"time": [NaN, 20]}',
     '{"time": [0, Infinity]}',
     '{"time": [-5, 20]}', "-5 to 20", '{"time": [10]}', '{"time": [true, 20]}', '{"time": null}', "1_0 to 20",
     "nan to 20", "{}", '{"time": [10, 20]}, {"time": [30, 40]}', "[10, 20] or [30, 40]", "0 to " + "9" * 400],
)  # fmt: skip
def test_no_interval(text):
    assert read_interval(text) is None
    assert verdict_of(text or "-", "[10, 20]", "temporal grounding").status == "unparsable"


@pytest.mark.parametrize(
    ("answer", "iou"),
    [("10-20", 1), ("10-15", 0.5), ("15-25", 1 / 3), ("30-40", 0), ("0-100", 0.1), ("20-30", 0), ("15-15", 0)],
)
def test_interval_overlap(answer, iou):
    verdict = verdict_of(answer, '<answer>{"time": [10, 20]}</answer>', "temporal grounding")
    assert (verdict.accuracy, verdict.status) == (pytest.approx(iou), "ok")


seconds = st.floats(0, 1e5)


@given(seconds, seconds, seconds, seconds)
@settings(max_examples=200)
def test_interval_iou_is_symmetric_and_bounded(a, b, c, d):
    first, second = Interval(*sorted((a, b))), Interval(*sorted((c, d)))
    iou = interval_iou(first, second)
    assert 0.0 <= iou <= 1.0 + 1e-12 and math.isclose(iou, interval_iou(second, first))
    assert interval_iou(first, first) == 1.0


@given(*(st.integers(0, 12) for _ in range(8)))
@settings(max_examples=200)
def test_box_iou_counts_cells(ax, ay, bx, by, cx, cy, dx, dy):
    first = Box(min(ax, bx), min(ay, by), max(ax, bx), max(ay, by))
    second = Box(min(cx, dx), min(cy, dy), max(cx, dx), max(cy, dy))
    cells = [
        {(x, y) for x in range(int(box.x1), int(box.x2)) for y in range(int(box.y1), int(box.y2))}
        for box in (first, second)
    ]
    union = len(cells[0] | cells[1])
    expected = 1.0 if first == second else len(cells[0] & cells[1]) / union if union else 0.0
    assert box_iou(first, second) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "iou"),
    [
        ("[0, 0, 10, 10]", 1), ("[[0, 0, 10, 10]]", 1), ('{"boxes": [0, 0, 10, 5]}', 0.5),
        ('{"bbox_2d": [5, 5, 15, 15]}', 1 / 7),
        ('[{"bbox_2d": [0, 0, 10, 10], "label": "dog"}]', 1), ("(0,0),(10,10)", 1), ("0 0 10 10", 1),
        ("x1=0, y1=0, x2=10, y2=10", 1), ("[[0, 0], [10, 10]]", 1), ('["0", "0", "10", "10"]', 1),
        ("[20, 20, 30, 30]", 0), ("[-5, 0, 10, 10]", 2 / 3),
    ],
)  # fmt: skip
def test_boxes(answer, iou):
    for gold in ("[0, 0, 10, 10]", '<answer>{"boxes": [0, 0, 10, 10]}</answer>'):
        assert verdict_of(answer, gold, "spatial grounding").accuracy == pytest.approx(iou)


@pytest.mark.parametrize(
    "answer",
    [
        "0 0 10",
        "[10, 10, 0, 0]",
        "[0, 0, 10, NaN]",
        "[0, 0, 10, 10, 5]",
        "a dog",
        '{"boxes": []}',
        "[0, 0, 10, 10] or [5, 5, 9, 9]",
        '["a", "b", "c", "d"]',
    ],
)
def test_no_box(answer):
    verdict = verdict_of(answer, "[0, 0, 10, 10]", "spatial grounding")
    assert (verdict.accuracy, verdict.status) == (0.0, "unparsable")


TUBE = '{"time": [10, 20], "boxes": {"10": [0, 0, 10, 10], "11": [0, 0, 10, 10]}}'


@pytest.mark.parametrize(
    ("answer", "accuracy"),
    [
        (TUBE, 1.0),
        ('{"time": [10, 15], "boxes": {"10": [0, 0, 10, 5]}}', (0.5 + 0.25) / 2),
        ('{"time": ["00:10", "00:20"]}', 0.5),
        ('{"boxes": {"10": [0, 0, 10, 10], "11": [0, 0, 10, 10]}}', 0.5),
        ('{"time": [10, 20], "boxes": {"10s": [0, 0, 10, 10], "00:11": [0, 0, 10, 10]}}', 1.0),
        ('{"time": [10, 20], "boxes": {"10": [0, 0, 10, NaN], "11": [0, 0, 10, 10]}}', 0.75),
        ('{"time": [10, 20], "boxes": {"' + "9" * 400 + '": [0, 0, 10, 10], "10": [0, 0, 10, 10]}}', 0.75),
        ('{"time": [10, 20], "boxes": {"10": [0, 0, 10, 10], "11": [10, 10, 0, 0]}}', 0.75),
        ('{"time": [10, 20], "boxes": {"10": [0, 0, 10, 10], "11": [0, 0, 10, 10], "50": [0, 0, 1, 1]}}', 1.0),
    ],
)
def test_tubes(answer, accuracy):
    assert verdict_of(answer, TUBE, "spatial-temporal grounding").accuracy == pytest.approx(accuracy)


def test_unreadable_tube_and_gold():
    assert verdict_of("from 10 to 20", TUBE, "spatial-temporal grounding").status == "unparsable"
    for problem_type in ("temporal grounding", "spatial grounding", "spatial-temporal grounding"):
        with pytest.raises(ValueError, match="gold answer of"):
            verdict_of("[1, 2]", "soon", problem_type)


@pytest.mark.parametrize(("text", "value"),
[("90", 90), ("1:30", 90), ("01:01:01.5", 3661.5), ("1:60", None), ("1.5:10", None),
                                             ("1:2:3:4", None), ("x", None), ("", None), ("-1", None)])  # fmt: skip
def test_clock_times(text, value):
    assert parse_seconds(text) == value


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        ('[{"start": "00:10", "end": "00:20"}]', (10, 20)),
        ('{"start_time": 10.0, "end_time": "00:20"}', (10, 20)),
        ("In the 30-second video, the event happens from 10 to 20 seconds.", (10, 20)),
        ("10.0s to 20.0s (duration: 10.0 s)", (10, 20)),
        ("1. 10.0 - 20.0", (10, 20)),
        ("从10秒到20秒", (10, 20)),
        ("from 10 to 20 s, then from 25 to 30 s", None),
        ("10, 20, 30", None),
    ],
)
def test_the_one_span_among_other_numbers(reply, seconds):
    assert read_interval(reply) == seconds
