from __future__ import annotations

import threading
import time

import pytest

from ktr.rewards import score_reply
from ktr.rewards.expressions import same_value
from ktr.rewards.math_verifier import MathVerifier, VerifierTimeout, score_math


@pytest.fixture(scope="module")
def verifier():
    verifier = MathVerifier(limit_seconds=20.0)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("$\\frac{1}{2}$", "0.5", True), ("\\frac{1}{2}", "1/2", True), ("5", "\\boxed{5}", True),
        ("\\boxed{5}", "5", True),
        ("5", "5 cm", True), ("1,000", "1000", True), ("$x^2+1$", "$1+x^2$", True), ("$x^2+1$", "x^2+1", True),
        ("2\\sqrt{3}", "\\sqrt{12}", True), ("$x=5$", "5", True), ("(1,2)", "$(1, 2)$", True),
        ("(x+1)^2", "x^2+2x+1", True),
        ("x+y", "y+x", True), ("hello", "hello", True), ("5", "The answer is 5", True),
        ("5", "6", False), ("5", "hello", False), ("$\\pi$", "3.14159", False), ("(1,2)", "(2,1)", False),
        ("(1,2)", "[1,2]", False),
        ("x^2", "x^3", False), ("5", "5 or 6", False), ("5", "\\boxed{5} \\boxed{6}", False), ("5", "5x", False),
    ],
)  # fmt: skip
def test_expressions(gold, answer, right):
    verdict = score_reply(f"<think>t</think><answer>{answer}</answer>", problem_type="math", gold=gold)
    assert verdict.accuracy == float(right)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("\\{1, 2\\}", "\\{2, 1\\}", True),
        ("\\sin^2 x + \\cos^2 x", "1", True),
        ("\\log_2 8", "3", True),
        ("x > 2", "x > 3", False),
    ],
)
def test_the_verifier_decides_what_a_first_look_cannot(verifier, gold, answer, right):
    assert same_value(gold, answer) is None
    assert score_math(answer, gold, verifier).accuracy == float(right)


def test_the_verifier_works_off_the_main_thread(verifier):
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(score_math("\\log_2 16", "\\log_3 81", verifier)))
    thread.start()
    thread.join(timeout=60)
    assert [outcome.accuracy for outcome in outcomes] == [1.0]


def test_a_pathological_answer_is_cut_off_and_the_next_one_is_scored():
    verifier = MathVerifier(limit_seconds=1.0)
    verifier_ready = verifier.compare("$1$", "$1$")
    assert verifier_ready["right"]
    start = time.monotonic()
    outcome = score_math("9^{9^{9^{9}}}", "\\log_2 8", verifier)
    assert time.monotonic() - start < 10.0
    assert (outcome.accuracy, outcome.status) == (0.0, "unparsable")
    assert "within 1 s" in outcome.detail and verifier.timeouts == 1
    verifier.limit_seconds = 20.0
    assert score_math("\\log_2 8", "\\log_3 27", verifier).accuracy == 1.0
    verifier.close()


def test_a_dead_child_is_replaced(verifier):
    assert verifier.compare("$1$", "$1$")["right"]
    verifier._child.kill()
    verifier._child.wait()
    assert verifier.compare("$2$", "$2$")["right"]


def test_a_child_that_dies_while_asked_is_counted():
    verifier = MathVerifier(limit_seconds=20.0)
    assert verifier.compare("$1$", "$1$")["right"]
    threading.Timer(0.3, verifier._child.kill).start()
    with pytest.raises(VerifierTimeout, match="died"):
        verifier.compare("$1$", "$9^{9^{9^{9}}}$")
    assert verifier.deaths == 1
    verifier.close()


def test_an_overlong_expression_is_not_tried():
    outcome = score_math("1+" * 2000 + "1", "5")
    assert (outcome.accuracy, outcome.status) == (0.0, "unparsable")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2x", "x*2", True), ("\\frac{a^2-b^2}{a+b}", "a-b", True), ("x^{-1}", "\\frac{1}{x}", True),
        ("\\sqrt[3]{8}", "2", True),
        ("2^{10}", "1024", True), ("-\\frac{1}{2}", "\\frac{-1}{2}", True), ("2\\pi", "\\pi \\cdot 2", True),
        ("\\frac12", "0.5", True),
        ("\\left(\\frac{1}{2},3\\right)", "(0.5, 3)", True), ("y = 2x", "2x", True), ("√4", "2", True),
        ("\\sqrt{x^2}", "x", False), ("x", "y", False), ("x+1", "x+2", False), ("-3^2", "9", False),
        ("(1,2)", "(1,3)", False),
        ("1/3", "0.333333", None), ("e", "2.718", None), ("cat", "act", None), ("9^{9^9}", "1", None),
        ("1 1/2", "1.5", None),
        ("(1,234)", "1234", None), ("\\sin x", "x", None), ("((((", "1", None), ("", "", None),
        ("(1,2)", "(1,2]", None),
        ("1/0", "1", None), ("(" * 500 + "1" + ")" * 500, "1", None),
    ],
)  # fmt: skip
def test_first_look(first, second, same):
    assert same_value(first, second) is same
    assert same_value(second, first) is same


@pytest.mark.slow
def test_the_first_look_never_contradicts_math_verify():
    from itertools import combinations

    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    expressions = [
        "1/2",
        "\\frac{1}{2}",
        "0.5",
        "x+1",
        "1+x",
        "2\\sqrt{3}",
        "\\sqrt{12}",
        "(1,2)",
        "[1,2]",
        "x=5",
        "5",
        "\\pi",
        "3.14159",
        "2\\pi",
        "x^2+2x+1",
        "(x+1)^2",
        "-x",
        "\\frac{1}{x}",
        "\\frac{x}{y}",
        "xy",
        "yx",
        "1,000",
        "1000",
        "(-3)",
        "3^2",
        "9",
        "2^{10}",
        "1024",
        "\\sqrt{x^2}",
        "x",
        "\\left(\\frac{1}{2},3\\right)",
        "(0.5,3)",
        "-\\frac{1}{2}",
        "2\\cdot3",
        "6",
        "10^{-3}",
        "0.001",
        "a^2-b^2",
        "(a-b)(a+b)",
        "0.3333",
        "1/3",
        "2x",
        "ab",
    ]
    forms = (LatexExtractionConfig(), ExprExtractionConfig())
    parsed = {text: parse(f"${text}$", extraction_config=forms, parsing_timeout=None) for text in expressions}
    for first, second in combinations(expressions, 2):
        same = same_value(first, second)
        if same is not None:
            assert verify(parsed[first], parsed[second], timeout_seconds=None) == same, (first, second)
