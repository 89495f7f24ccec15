"""Scorers of the types whose answer is one number: numerical, regression, and counts."""

from __future__ import annotations

import re

from ktr.rewards.numbers import Number, close, read_numbers, readings
from ktr.rewards.text import collapse, normalise, strip_answer_cue, unwrap
from ktr.rewards.verdict import Outcome, right_or_wrong

REGRESSION_METRICS = ("relative_error", "mra", "mra_vsibench")
# As VSI-Bench's script computes them, by numpy.linspace(0.5, 0.95, 10): ties fall where its floats put them.
_VSIBENCH_THRESHOLDS = (*(k * ((0.95 - 0.5) / 9) + 0.5 for k in range(9)), 0.95)

_TIME = re.compile(r"(?<![\d:])\d{1,3}\s*:\s*\d{2}(?:\s*:\s*\d{2})?(?:\.\d+)?(?![\d:])")
_HALF_OF_DAY = re.compile(r"(?<![A-Za-z])[ap]\.?\s?m\b", re.IGNORECASE)
_TIMES = {"once": "1 time", "twice": "2 times", "thrice": "3 times"}


def score_numerical(answer: str, gold: str) -> Outcome:
    """1 when the one number of the answer equals the gold within 1e-4 relative (1e-6 absolute at zero).

    A gold that is not one number (a clock time, a ratio) is compared as text.
    """
    gold_number = read_numbers(gold).single()
    if gold_number is None:
        return _compare_as_text(answer, gold)
    number = read_numbers(answer).single()
    if number is None:
        return _no_number(answer)
    return right_or_wrong(any(close(x, gold_number.value) for x in readings(number, gold_number)), _shown(number))


def score_count(answer: str, gold: str) -> Outcome:
    """1 when the answer is exactly the gold count; "once", "twice" and "thrice" are counts too."""
    gold_number = _gold_number(gold, "count")
    number = read_numbers(_TIMES.get(normalise(answer), answer)).single()
    if number is None:
        return _no_number(answer)
    return right_or_wrong(number.value == gold_number.value and not number.percent, _shown(number))


def score_regression(answer: str, gold: str, metric: str = "relative_error") -> Outcome:
    """Closeness to the gold.

    `relative_error` is `1 - |x - g| / |g|`, not below 0. `mra` is the mean relative accuracy of VSI-Bench
    (2412.14171, section 3): the share of the thresholds 0.5, 0.55, ..., 0.95 with `|x - g| / |g| < 1 - threshold`.
    `mra_vsibench` is the same by the letter of its evaluation script, which takes `<=`: 3 for 4 earns 0.6, not 0.5.
    A gold of zero is met within 1e-6 or missed.
    """
    if metric not in REGRESSION_METRICS:
        raise ValueError(f"unknown metric {metric!r} of regression; known: {', '.join(REGRESSION_METRICS)}")
    gold_number = _gold_number(gold, "regression")
    number = read_numbers(answer).single()
    if number is None:
        return _no_number(answer)
    accuracy = max(_CLOSENESS[metric](x, gold_number.value) for x in readings(number, gold_number))
    return Outcome(accuracy, "ok", _shown(number))


def _relative_accuracy(value: float, gold: float) -> float:
    if gold == 0.0:
        return 1.0 if close(value, gold) else 0.0
    return max(0.0, 1.0 - abs(value - gold) / abs(gold))


def _mean_relative_accuracy(value: float, gold: float) -> float:
    if gold == 0.0:
        return 1.0 if close(value, gold) else 0.0
    error_in_twentieths = round(20.0 * abs(value - gold) / abs(gold), 9)
    return sum(error_in_twentieths < k for k in range(1, 11)) / 10.0


def _vsibench_accuracy(value: float, gold: float) -> float:
    if gold == 0.0:
        return 1.0 if close(value, gold) else 0.0
    error = abs(value - gold) / abs(gold)
    return sum(error <= 1 - threshold for threshold in _VSIBENCH_THRESHOLDS) / 10.0


_CLOSENESS = {
    "relative_error": _relative_accuracy,
    "mra": _mean_relative_accuracy,
    "mra_vsibench": _vsibench_accuracy,
}


def _gold_number(gold: str, kind: str) -> Number:
    number = read_numbers(gold).single()
    if number is None:
        raise ValueError(f"the gold answer of a {kind} question must be one finite number, not {gold!r}")
    return number


def _no_number(answer: str) -> Outcome:
    numbers = read_numbers(answer)
    return Outcome(0.0, "ambiguous" if len(numbers.found) > 1 and not numbers.refused else "unparsable")


def _shown(number: Number) -> str:
    return f"{number.value:.12g}{'%' if number.percent else ''}"


def _compare_as_text(answer: str, gold: str) -> Outcome:
    shown = _as_text(answer)
    if shown == _as_text(gold):
        return right_or_wrong(True, shown)
    times = {_tight(time[0]) for time in _TIME.finditer(answer)}
    if _TIME.fullmatch(gold.strip()) and len(times) == 1 and not _HALF_OF_DAY.search(answer):
        (time_text,) = times
        return right_or_wrong(time_text == _tight(gold), time_text)
    return right_or_wrong(False, shown)


def _as_text(text: str) -> str:
    return re.sub(r"\s*:\s*", ":", normalise(strip_answer_cue(unwrap(text))))


def _tight(text: str) -> str:
    return collapse(text).replace(" ", "")
