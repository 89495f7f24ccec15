"""Scorers of grounding: an interval in time, a box in the picture, or boxes over time.

Gold and reply may be JSON (`{"time": [s, e]}`, `{"boxes": [x1, y1, x2, y2]}`, both with boxes keyed by second) or text:
two times in seconds, MM:SS or HH:MM:SS; four coordinates.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from typing import Any, NamedTuple

from ktr.rewards.text import boxed_contents
from ktr.rewards.verdict import Outcome

_MOST_OPENINGS = 64
_OBJECT = re.compile(r"[{\[]")
_UNIT_TIME = (
    r"(?:(?P<h>\d+(?:\.\d+)?)\s*(?:hours?|hrs?|h|小时|時間)(?![a-z])[\s,]*(?:and\s+)?)?"
    r"(?:(?P<m>\d+(?:\.\d+)?)\s*(?:minutes?|mins?|m|分钟?)(?![a-z])[\s,]*(?:and\s+)?)?"
    r"(?:(?P<s>\d+(?:\.\d+)?)\s*(?:seconds?|secs?|s|秒)(?![a-z]))?"
)
_CLOCK_TIME = r"(?P<clock>\d+(?::\d{1,2}){1,2}(?:\.\d+)?)(?![:\d])"
_BARE_TIME = r"(?P<bare>\d+(?:\.\d+)?|\.\d+)(?![:\d]|\.\d)"
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_STARTS = r"(?<![A-Za-z\d_.:])"
_TIME = re.compile(
    rf"{_STARTS}{_CLOCK_TIME}(?:\s*s\b)?|{_STARTS}(?=\d){_UNIT_TIME}(?<=[a-z时間分钟秒])|{_STARTS}{_BARE_TIME}",
    re.IGNORECASE,
)
_TO = re.compile(r"[\s)\]>]*(?:-+>?|~|to|until|till|and|through|到|至)[\s(\[<]*", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+(?:\.\d+)?|\.\d+)(?![\w]|\.\d)")
_TIME_KEYS = ("time", "times", "timestamp", "timestamps", "interval", "segment", "span", "time_range")
_BOUND_KEYS = (("start", "end"), ("start_time", "end_time"))
_BOX_KEYS = ("boxes", "box", "bbox", "bboxes", "bbox_2d", "bounding_box")


class Interval(NamedTuple):
    """Start and end in seconds, `0 <= start <= end`."""

    start: float
    end: float


class Box(NamedTuple):
    """Corners in pixels (or in whatever unit gold and reply share), `x1 <= x2` and `y1 <= y2`."""

    x1: float
    y1: float
    x2: float
    y2: float


def score_temporal_grounding(answer: str, gold: str) -> Outcome:
    """Intersection over union of two intervals. Raises ValueError when the gold holds no interval."""
    wanted = read_interval(gold)
    if wanted is None:
        raise ValueError(f"the gold answer of temporal grounding holds no interval of two times: {gold!r}")
    given = read_interval(answer)
    if given is None:
        return Outcome(0.0, "unparsable")
    return Outcome(interval_iou(given, wanted), "ok", _show(given))


def score_spatial_grounding(answer: str, gold: str) -> Outcome:
    """Intersection over union of two boxes. Raises ValueError when the gold holds no box."""
    wanted = read_box(gold)
    if wanted is None:
        raise ValueError(f"the gold answer of spatial grounding holds no box x1, y1, x2, y2: {gold!r}")
    given = read_box(answer)
    if given is None:
        return Outcome(0.0, "unparsable")
    return Outcome(box_iou(given, wanted), "ok", _show(given))


def score_spatial_temporal_grounding(answer: str, gold: str) -> Outcome:
    """Half the IoU of the intervals, half the mean box IoU over the gold's seconds (a missing box counts 0).

    Raises ValueError when the gold lacks the interval or the boxes.
    """
    wanted_time, wanted_boxes = read_interval(gold), read_boxes(gold)
    if wanted_time is None or not wanted_boxes:
        raise ValueError(f'the gold answer of spatial-temporal grounding must hold "time" and "boxes": {gold!r}')
    given_time, given_boxes = read_interval(answer, json_only=True), read_boxes(answer)
    if given_time is None and given_boxes is None:
        return Outcome(0.0, "unparsable")
    time_score = interval_iou(given_time, wanted_time) if given_time is not None else 0.0
    given_boxes = given_boxes or {}
    overlaps = [box_iou(given_boxes[k], box) if k in given_boxes else 0.0 for k, box in wanted_boxes.items()]
    accuracy = (time_score + sum(overlaps) / len(overlaps)) / 2.0
    return Outcome(accuracy, "ok", f"{_show(given_time) if given_time else 'no time'}, {len(given_boxes)} boxes")


def interval_iou(a: Interval, b: Interval) -> float:
    """Intersection over union of two intervals, in [0, 1]; two equal instants are 1."""
    if a == b:
        return 1.0
    common = max(0.0, min(a.end, b.end) - max(a.start, b.start))
    union = (a.end - a.start) + (b.end - b.start) - common
    return common / union if union > 0.0 else 0.0


def box_iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes' areas, in [0, 1]; two equal boxes are 1."""
    if a == b:
        return 1.0
    width = min(a.x2, b.x2) - max(a.x1, b.x1)
    height = min(a.y2, b.y2) - max(a.y1, b.y1)
    common = max(0.0, width) * max(0.0, height)
    union = _area(a) + _area(b) - common
    return common / union if union > 0.0 else 0.0


def _area(box: Box) -> float:
    return (box.x2 - box.x1) * (box.y2 - box.y1)


def read_interval(text: str, json_only: bool = False) -> Interval | None:
    """The one interval in a text, or None: not exactly two times, an end before the start, an impossible clock."""
    text = _plain(text)
    spans = _json_under(text, _TIME_KEYS)
    if spans:
        return _only([_interval_of(span) for span in spans])
    return None if json_only else _interval_in_words(text)


def read_box(text: str) -> Box | None:
    """The one box in a text, or None: not exactly four finite numbers, or corners in the wrong order."""
    text = _plain(text)
    boxes = _json_under(text, _BOX_KEYS)
    if boxes:
        return _only([_box(box) for box in boxes])
    return _box([float(number) for number in _NUMBER.findall(text)])


def read_boxes(text: str) -> dict[int, Box] | None:
    """Boxes keyed by whole seconds; None where there is no JSON with boxes; a malformed box is left out."""
    for boxes in _json_under(_plain(text), _BOX_KEYS):
        if isinstance(boxes, dict):
            read = {_second(key): _box(box) for key, box in boxes.items()}
            return {second: box for second, box in read.items() if second is not None and box is not None}
    return None


def parse_seconds(text: str) -> float | None:
    """Seconds of a clock time `MM:SS` or `HH:MM:SS` (fractions allowed), or of a plain number; None otherwise."""
    fields = text.strip().split(":")
    if not 1 <= len(fields) <= 3 or not all(re.fullmatch(r"\d+(?:\.\d+)?|\.\d+", field) for field in fields):
        return None
    if any("." in field for field in fields[:-1]) or any(float(field) >= 60.0 for field in fields[1:]):
        return None
    return sum(float(field) * 60.0**power for power, field in enumerate(reversed(fields)))


def _plain(text: str) -> str:
    boxed = boxed_contents(text)
    text = unicodedata.normalize("NFKC", boxed[0] if len(boxed) == 1 else text)
    return re.sub("[−‐‑–—]", "-", text)


def _json_values(text: str) -> list[Any]:
    """The JSON objects and arrays that stand in a text, outermost ones, single quotes tolerated."""
    values, at = [], 0
    decoder = json.JSONDecoder(parse_constant=lambda _: None)  # NaN and Infinity are no times and no corners
    candidates = (text, text.replace("'", '"'))
    for opening in itertools.islice(_OBJECT.finditer(text), _MOST_OPENINGS):
        if opening.start() < at:
            continue
        for candidate in candidates:
            try:
                value, at = decoder.raw_decode(candidate, opening.start())
            except (ValueError, RecursionError):
                continue
            values.append(value)
            break
    return values


def _json_under(text: str, keys: tuple[str, ...]) -> list[Any]:
    """What stands under one of the keys in a text's JSON objects; where no object has one, its JSON arrays."""
    values: list[Any] = [_unnested(value) for value in _json_values(text)]
    objects: list[dict[str, Any]] = [
        {key.lower(): found for key, found in value.items()} for value in values if isinstance(value, dict)
    ]
    keyed = [next(value[key] for key in keys if key in value) for value in objects if not value.keys().isdisjoint(keys)]
    bounds = [value for value in objects if keys is _TIME_KEYS and _bounds(value)]
    arrays = [value for value in values if isinstance(value, list)]
    return keyed or bounds or arrays


def _unnested(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (list, dict)) else value


def _only(read: list[Any]) -> Any:
    """The value that all of them are, None when they differ: two answers are never reduced to one."""
    return read[0] if len(set(read)) == 1 else None


def _interval_of(span: Any) -> Interval | None:
    span = _unnested(span)
    if isinstance(span, dict):
        span = _bounds(span)
    if isinstance(span, str):
        return _interval_in_words(span)
    return _interval([_json_seconds(time) for time in span]) if isinstance(span, list) else None


def _bounds(value: dict[str, Any]) -> list[Any] | None:
    return next(([value[key] for key in pair] for pair in _BOUND_KEYS if value.keys() >= set(pair)), None)


def _second(key: str) -> int | None:
    number = _json_seconds(key)
    return None if number is None or number != int(number) else int(number)


def _finite(value: Any) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


def _json_seconds(value: Any) -> float | None:
    if isinstance(value, str):
        found = _times_in_words(value)
        return found[0] if len(found) == 1 else None
    return _finite(value)


def _interval_in_words(text: str) -> Interval | None:
    """The two times of a text; where it holds more, the one pair of them that a word or dash for "to" joins."""
    if "_" in text or re.search(r"(?:^|[^\w\s)\].:])\s*-\s*\d|^\s*-\s*\d|\(\s*-\s*\d", text):
        return None
    found = list(_TIME.finditer(text))
    if len(found) > 2:
        pairs = [
            pair
            for pair in itertools.pairwise(found)
            if _TO.fullmatch(text, pair[0].end(), pair[1].start()) is not None
        ]
        spans = {_interval([_seconds(time) for time in pair]) for pair in pairs}
        return spans.pop() if len(spans) == 1 else None
    return _interval([_seconds(time) for time in found])


def _times_in_words(text: str) -> list[float | None]:
    return [_seconds(match) for match in _TIME.finditer(text)]


def _seconds(match: re.Match[str]) -> float | None:
    if match["clock"] or match["bare"]:
        return _finite(parse_seconds(match["clock"] or match["bare"]))
    return _finite(sum(float(match[unit] or 0.0) * seconds for unit, seconds in _SECONDS.items()))


def _interval(times: list[float | None]) -> Interval | None:
    if len(times) != 2:
        return None
    start, end = times
    return Interval(start, end) if start is not None and end is not None and 0.0 <= start <= end else None


def _box(value: Any) -> Box | None:
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    if not isinstance(value, list):
        return None
    value = _unnested(value)
    if len(value) == 2 and all(isinstance(corner, list) for corner in value):
        value = [*value[0], *value[1]]
    corners = [_finite(number) for number in value]
    if len(corners) != 4:
        return None
    x1, y1, x2, y2 = corners
    if x1 is None or y1 is None or x2 is None or y2 is None or x2 < x1 or y2 < y1:
        return None
    return Box(x1, y1, x2, y2)


def _show(values: Interval | Box) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values) + "]"
