from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktr.rewards import score_reply
from ktr.rewards.numbers import Number, read_numbers


def verdict_of(answer: str, gold: str, problem_type: str = "numerical", **options):
    return score_reply(f"<think>t</think><answer>{answer}</answer>", problem_type=problem_type, gold=gold, **options)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("5.0", 5), ("5.", 5), ("+5", 5), ("(5)", 5), ("[5]", 5), (".5", 0.5), ("-.5", -0.5), ("5 cars", 5),
        ("5th", 5), ("about 5", 5), ("~5", 5), ("≈5", 5), ("x = 5", 5), ("Answer: 5", 5), ("**5**", 5), ("５", 5),
        ("①", 1),
        ("5 (five)", 5), ("-3", -3), ("−3", -3), ("–3", -3), ("- 3", -3), ("minus 3", -3), ("negative three", -3),
        ("1,234", 1234), ("1,234.50", 1234.5), ("1,000,000", 1e6), ("1\\,234", 1234), ("1{,}234", 1234),
        ("1\u202f234", 1234),
        ("1/2", 0.5), ("1 / 2", 0.5), ("½", 0.5), ("−½", -0.5), ("1⁄2", 0.5), ("1 1/2", 1.5), ("1½", 1.5),
        ("-1 1/2", -1.5),
        ("1 and 1/2", 1.5), ("3 1/2 cups", 3.5), ("1.5/3", 0.5), ("\\frac{1}{2}", 0.5), ("-\\frac{1}{2}", -0.5),
        ("\\frac{-1}{2}", -0.5), ("\\frac12", 0.5), ("\\dfrac{3}{4}", 0.75), ("1\\frac{1}{2}", 1.5), ("$5$", 5),
        ("\\boxed{5}", 5),
        ("\\boxed{\\frac{1}{2}}", 0.5), ("\\text{5 cars}", 5), ("5\\text{ m}", 5), ("\\(5\\)", 5), ("\\[5\\]", 5),
        ("90°", 90), ("90^\\circ", 90), ("90^{\\circ}", 90), ("5 m²", 5), ("5 m^2", 5), ("5 m2", 5), ("5 km/h", 5),
        ("H2O: 5", 5),
        ("1e-3", 1e-3), ("1E5", 1e5), ("1.5×10^3", 1500), ("1.5 × 10⁻³", 1.5e-3), ("1.5 \\times 10^{-3}", 1.5e-3),
        ("5*10^2", 500), ("10^3", 1000), ("10²", 100), ("$1,234", 1234), ("\\$5", 5), ("-$5", -5), ("$-5", -5),
        ("5€", 5),
        ("zero", 0), ("five", 5), ("Twenty", 20), ("fourteen cars", 14), ("one half", 0.5), ("two-thirds", 2 / 3),
        ("5 million", 5e6), ("2 dozen", 24), ("½", 0.5), ("5 not counting the last", 5), ("pipe 5", 5),
    ],
)  # fmt: skip
def test_one_number(text, value):
    number = read_numbers(text).single()
    assert number is not None and number.value == pytest.approx(value, rel=1e-12) and not number.percent


@pytest.mark.parametrize("text", ["50%", "50 %", "50\\%", "50％", "50 percent", "50 per cent", "50 pct", "$50\\%$"])
def test_percent(text):
    assert read_numbers(text).single() == Number(50.0, percent=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "none", "nan", "NaN", "inf", "-inf", "Infinity", "∞", "1_00", "1_000", "1,5", "0,5", "1,23", "12,34,567",
        "1,0000",
        "1'234", "1.2.3", "1.234.567", "12:30", "3:4", "3/4/2020", "1/0", "1e999", "\\sqrt{2}", "\\pi", "2^3",
        "thirty-five",
        "fifty percent", "a dozen", "a hundred", "one hundred", "two million", "A5", "x_1", "0x10", "√4",
        "sqrt(4)", "2π",
        "2 pi", "±5", "\\pm 5", "not 5", "it isn't 5", "≠5",
    ],
)  # fmt: skip
def test_no_number(text):
    assert read_numbers(text).single() is None
    assert verdict_of(text or " . ", "5").status == "unparsable"


@pytest.mark.parametrize(
    "text",
    ["5 or 6", "5-7", "5–7", "between 4 and 6", "1 234", "1, 2", "3 x 4", "2 + 3 = 5", "7 out of 10", "5 ± 1",
     "5 \\pm 1",
     "twenty-one",
     "2020-05-01", "two point five", "5 of the 12"],
)  # fmt: skip
def test_exactly_one_number_must_stand(text):
    verdict = verdict_of(text, "5")
    assert (verdict.accuracy, verdict.status, verdict.parsed) == (0.0, "ambiguous", None)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("50", "50%", True), ("50%", "50", True), ("50%", "50%", True), ("50%", "0.5", False), ("50%", "0.5%", False),
        ("0.5", "50%", True), ("0.5", "0.5%", True), ("0.5", "50", False), ("1", "100%", True), ("2", "200%", False),
        ("0", "0%", True), ("-0.5", "-50%", False),
        ("5", "5.0004", True), ("5", "5.0006", False), ("10000", "10001", True), ("10000", "10002", False),
        ("0.001", "0.004", False),
        ("0", "0.0000009", True), ("0", "0.000002", False), ("0", "-0", True), ("3.14", "\\frac{22}{7}", False),
        ("1/3", "0.33333", True), ("1/3", "0.333", False), ("-5", "5", False), ("5 cars", "5", True),
        ("five", "5", True),
        ("1,234", "1234", True), ("$360", "360", True), ("15", "1,5", False), ("100", "1_00", False), ("5", "", False),
        ("12:30", "12:30", True), ("12:30", "12:30.", True), ("12:30", "The time is 12:30", True),
        ("12:30", "12:30 pm", False),
        ("12:30", "12:31", False), ("12:30", "1230", False), ("12:30", "12", False), ("12", "12:30", False),
        ("3:4", "3 : 4", True),
        ("2024-05-01", "2024-05-01", True),
    ],
)  # fmt: skip
def test_numerical_policy(gold, answer, right):
    assert verdict_of(answer, gold).accuracy == float(right)


@given(st.floats(min_value=-1e12, max_value=1e12, allow_nan=False), st.integers(-(10**9), 10**9))
@settings(max_examples=200)
def test_a_written_number_is_read_back(value, whole):
    assert read_numbers(repr(value)).single() == Number(value)
    assert read_numbers(f"{whole:,}").single() == Number(float(whole))


@pytest.mark.parametrize(
    ("gold", "answer", "accuracy"),
    [
        ("10", "9", 0.9), ("10", "30", 0.0), ("-4", "-5", 0.75), ("0", "0", 1.0), ("0", "0.0000001", 1.0),
        ("0", "0.1", 0.0),
        ("2.5", "about 2.5 m", 1.0), ("5", "nan", 0.0), ("5", "inf", 0.0), ("5", "-inf", 0.0), ("5", "1e400", 0.0),
        ("4", "3 or 5", 0.0),
        ("0.5", "50%", 1.0), ("50%", "40", 0.8), ("-10", "10", 0.0),
    ],
)  # fmt: skip
def test_relative_error(gold, answer, accuracy):
    assert verdict_of(answer, gold, "regression").accuracy == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("gold", "answer", "accuracy"),
    [("10", "10", 1.0), ("10", "9.6", 1.0), ("10", "9.5", 0.9), ("10", "9", 0.8), ("10", "12", 0.6), ("10", "5.1", 0.1),
     ("10", "5", 0.0), ("10", "30", 0.0), ("0", "0", 1.0), ("0", "1", 0.0), ("10", "nan", 0.0)],
)  # fmt: skip
def test_mean_relative_accuracy(gold, answer, accuracy):
    assert verdict_of(answer, gold, "regression", metric="mra").accuracy == pytest.approx(accuracy)


@pytest.mark.parametrize("gold", [1, 2, 3, 4, 5, 10, 20])
def test_vsibenchs_own_accuracy_is_that_of_its_script(gold):
    thresholds = np.linspace(0.5, 0.95, 10)
    for value in range(3 * gold):
        expected = float(((abs(value - gold) / gold) <= 1 - thresholds).mean())
        found = verdict_of(str(value), str(gold), "regression", metric="mra_vsibench").accuracy
        assert found == pytest.approx(expected), (value, gold)
    assert verdict_of("0", "0", "regression", metric="mra_vsibench").accuracy == 1.0


@given(st.floats(0.01, 1e6), st.floats(0.0, 1e6))
@settings(max_examples=200)
def test_closeness_lies_between_zero_and_one_and_mra_follows_its_definition(gold, value):
    for metric in ("relative_error", "mra"):
        accuracy = verdict_of(repr(value), repr(gold), "regression", metric=metric).accuracy
        assert 0.0 <= accuracy <= 1.0
    error = abs(value - gold) / gold
    if all(abs(error - k / 20) > 1e-6 for k in range(1, 11)):
        expected = sum(error < 1 - (0.5 + 0.05 * k) for k in range(10)) / 10
        assert math.isclose(accuracy, expected)


@pytest.mark.parametrize("problem_type", ["regression", "REC"])
def test_a_gold_that_is_no_number_is_an_error(problem_type):
    with pytest.raises(ValueError, match="must be one finite number, not 'nan'"):
        verdict_of("5", "nan", problem_type)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [("3", "3", True), ("3", "three times", True), ("3", "3.0", True), ("2", "twice", True), ("1", "Once.", True),
     ("3", "4", False),
     ("3", "30", False), ("3", "3 or 4", False), ("30000", "30001", False), ("3", "3%", False),
     ("3", "They did it 3 times.", True)],
)  # fmt: skip
def test_counts_are_exact(gold, answer, right):
    assert verdict_of(answer, gold, "REC").accuracy == float(right)
