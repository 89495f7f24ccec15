"""Reading one option out of an answer, in the many ways people and models write it."""

from __future__ import annotations

import pytest

from ktr.rewards import score_reply

COLOURS = ("A. red", "B. blue", "C. green", "D. a red car")
TEN = tuple(f"{letter}. opt{letter}x" for letter in "ABCDEFGHIJ")
VITAMINS = ("A. Vitamin C", "B. Vitamin D", "C. Vitamin A", "D. Iron")
DIGITS = ("1. one", "2. two", "3. three", "4. four")
COUNTS = ("A. 2", "B. 6", "C. 0", "D. 5")
SENTENCES = (
    "A. Yes, it pans to the left",
    "B. Yes, it slowly zooms in",
    "C. No, the camera stays",
    "D. None of the above",
)
BARE = ("red", "blue", "green", "a red car")
CHINESE = ("A. 红色", "B. 蓝色", "C. 绿色")
ROUND = ("(A) red", "(B) blue", "(C) green")
COLONS = ("A: Lion.", "B: A tiger.", "C: Rabbit.", "D: Wolves.")
MONEY = ("A. $52,000", "B. $62,000", "C. $72,000", "D. $82,000")
ORDERS = ("A. table, sofa, lamp, clock", "B. table, clock, sofa, lamp", "C. clock, table, sofa, lamp")
SHUFFLED = ("B. Distillation", "A. Photosynthesis", "C. Cellular respiration", "D. Genetic modification")
ROMAN = ("I. one", "II. two", "III. three", "IV. four")


def verdict_of(answer: str, gold: str, options: tuple[str, ...]):
    return score_reply(
        f"<think>t</think><answer>{answer}</answer>", problem_type="multiple choice", gold=gold, options=options
    )


WRAPPINGS = [
    "B", "B.", "(B)", "b", "b.", "(b)", "b)", "B)", "[B]", "{B}", "**B**", "*B*", "`B`", '"B"', "'B'", "“B”", "B:",
    "B!",
    "B,", "B;", "B。", "Ｂ", "（Ｂ）", "Ⓑ", " B \n", "#B", "<B>", "> B", "- B", "__B__", "_B_", "**(B)**", "(B).",
    "B.)",
    "\\boxed{B}", "$\\boxed{B}$", "\\boxed{\\text{B}}", "$\\text{B}$", "\\text{B}", "\\(B\\)", "$B$", "\\mathbf{B}",
    "\\textbf{(B)}", "\\boxed{B. blue}", "\\boxed{\\textbf{B}}", "$\\mathrm{B}$", "Option B", "option b", "Option (B)",
    "Choice B", "letter b", "B option", "The letter B", "Option B.", "✅ B", "B ✓",
]  # fmt: skip
WITH_TEXT = [
    "B. blue", "B) blue", "(B) blue", "(B)blue", "B: blue", "B - blue", "B – blue", "B blue", "b. blue", "b) Blue.",
    "B. Blue", "B.blue", "B、blue", "B, blue", "B; blue", "B = blue", "**B. blue**", "**B** blue", "B\nblue",
    "blue (B)",
    "B (blue)", "Option B: blue", "B. blue car", "blue", "Blue", "BLUE", "blue.", '"blue"', "Blue!", "It is blue",
    "The car is blue.", "In the video, the car is blue", "the blue one", "B. The car is clearly blue.", "A blue car",
]  # fmt: skip
STATEMENTS = [
    "Answer: B", "Answer: (B)", "answer: b", "Answer:B", "Ans: B", "answer = B", "Answer - B", "Answer B.",
    "Final answer: B",
    "**Answer:** B", "Answer: **B**", "**Answer: B**", "The answer is B", "The answer is B.", "The answer is (B).",
    "The correct answer is B.", "The correct answer is option B.", "The correct option is B", "The option is B",
    "The answer is **B. blue**.", "The correct one is (B).", "The best answer is B: blue", "the answer is 'B'",
    "Correct answer: B) blue", "The answer is \\boxed{B}.", "It is B. Option A only looks alike.", "It's B", "It’s B.",
    "It must be B", "It should be (B)", "It is definitely B", "I choose B, a safe bet", "i choose b, a safe bet",
    "I pick B", "I select option B.", "I would say B", "I'd go with B", "I think it's B.", "My choice is B", "So B.",
    "Therefore, B", "Thus the answer is B.", "-> B", "=> B", "B is correct", "B is right", "B is the best choice",
    "B is the correct answer.", "I am confident that B is the answer.", "I believe the answer to be B",
    "Based on the clip, B", "B for sure", "B because it is the only one that matches", "B - because",
    "Based on A, the answer is B",
    "Among A, B, C and D, the correct one is B.", "A, B, C, D are the options. The answer is B.",
    "A. red\nB. blue\nC. green\nD. a red car\nAnswer: B", "Options: A, B\nAnswer: B", "Antwort: B",
    "Antwort:\n\nAntwort: B",
    "Die Antwort ist B.", "La respuesta es B", "La réponse est B.", "答案：B", "答案是B", "答案是 B。",
    "正确答案为（B）",
    "选B", "我选B。", "Answer: A? No. Answer: B", "Answer: C\nWait.\nAnswer: B", "I first thought A, but it is B.",
    "The man chose A, but the right answer is B", "B. Option A only looks alike", "Between A and B, B is better",
    "The answer to this question is B, since A is red", "My guess is B", "The correct choice would be B",
    "I believe it's (B), although (A) is tempting", "b) the sky-coloured one",
    "Therefore the correct option is B; A is red", "B is the only one that matches; A does not", "答えはBです",
    "정답은 B",
    "The answer is B. A shows a red car", "A person drives a blue car", "The person in group A wears blue",
]  # fmt: skip
NEGATIONS = [
    "not A but B", "Not A but B.", "B, not C", "B (not C)", "B rather than C", "B instead of A", "I choose B over A",
    "It is not A. It is B.", "It isn't A, it is B", "Not C: B", "A is wrong, so B.", "A, C and D are wrong. B",
    "Neither A nor C, so B", "It cannot be A, so it must be B", "Since A is not shown, B", "Unlike A, B is visible",
    "Option B is correct, option C is not.", "B is correct because A is wrong.",
    "B, because A only shows red, not blue",
    "The correct answer is B. A, C, and D are incorrect.", "A is incorrect, C is incorrect, so the answer must be B",
    "答案是B，不是C",
    "A? No, B.", "I was going to say A but actually B", "Not A; rather B",
     "A? No. B", "Looking at A, C and D, none match; B does.", "Of A, C and D none is right. B",
    "The answer is not red but blue", "blue rather than red", "Blue (not red)",
    "Red is wrong, so blue.",
    "The color isn't red, it's blue", "The right one is clearly the blue one, which is option B, not A or C.",
]  # fmt: skip


@pytest.mark.parametrize("answer", WRAPPINGS + WITH_TEXT + STATEMENTS + NEGATIONS)
def test_one_option_in_any_wrapping(answer):
    verdict = verdict_of(answer, "B", COLOURS)
    assert (verdict.accuracy, verdict.status, verdict.parsed) == (1.0, "ok", "B")
    assert verdict_of(answer, "C", COLOURS).accuracy == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "A, B", "B or C", "A and B", "A/B", "AB", "B C", "B, C", "B & C", "A+B", "A|B", "B；C", "both A and B",
        "Either B or C", "(A) or (B)", "(A), (B)", "(A)(B)", "[A, B]", "Option A or Option B", "A. red or B. blue",
        "A. red B. blue", "A. red\nB. blue", "B. green", "B or maybe C", "Answer: B or C", "Answer: A, B",
        "The answer is B and C", "The answer is B) blue or C) green", "red or blue", "blue and green", "A, B and C",
        "B? C?", "A B", "A C B", "B. or C.", "C.\nB.", "The answer is between B and C", "All of them: A, B, C, D",
        "\\boxed{A} \\boxed{B}",
        "A: no\nB: yes", "Option A: no. Option B: yes. Option C: no.",
    ],
)  # fmt: skip
def test_two_options_are_ambiguous(answer):
    verdict = verdict_of(answer, "B", COLOURS)
    assert (verdict.accuracy, verdict.status, verdict.parsed) == (0.0, "ambiguous", None)


@pytest.mark.parametrize(
    "answer",
    ["E", "Z", "(F)", "F. blue", "the car", "I don't know", "unknown", "...", "-", "5", "Vehicle", "Car", "Best",
     "Blueish",
     "not B", "It is not B", "B is wrong", "It cannot be B.", "Everything except B"],
)  # fmt: skip
def test_no_option_is_no_answer(answer):
    verdict = verdict_of(answer, "B", COLOURS)
    assert (verdict.accuracy, verdict.status, verdict.parsed) == (0.0, "no_answer", None)


@pytest.mark.parametrize(
    ("options", "gold", "answer", "parsed"),
    [
        (COLOURS, "A", "red", "A"),
        (COLOURS, "D", "a red car", "D"),
        (COLOURS, "D", "A red car.", "D"),
        (COLOURS, "D", "It is a red car.", "D"),
        (COLOURS, "A", "A red", "A"),
        (COLOURS, "A", "a", "A"),
        (COLOURS, "A", "A because it is red", "A"),
        (COLOURS, "A", "A. It is the only option visible", "A"),
        (COLOURS, "D", "Answer: **D**", "D"),
        (TEN, "C", "I choose C", "C"),
        (TEN, "C", "C, as I showed", "C"),
        (TEN, "C", "C. As I said, I am sure.", "C"),
        (TEN, "C", "I'd say C", "C"),
        (TEN, "C", "As I showed, C", "C"),
        (TEN, "C", "In my view I must pick C", "C"),
        (TEN, "C", "I looked at it twice and I am certain. The answer is C, as I showed.", "C"),
        (TEN, "I", "I", "I"),
        (TEN, "I", "i", "I"),
        (TEN, "I", "I.", "I"),
        (TEN, "I", "(I)", "I"),
        (TEN, "I", "Option I", "I"),
        (TEN, "I", "The answer is I.", "I"),
        (TEN, "J", "optJx", "J"),
        (TEN, "H", "I choose H, a safe bet", "H"),
        (VITAMINS, "A", "Vitamin C", "A"),
        (VITAMINS, "C", "Vitamin A", "C"),
        (VITAMINS, "A", "A. Vitamin C", "A"),
        (VITAMINS, "A", "It is vitamin C.", "A"),
        (VITAMINS, "A", "vitamin C, not vitamin D", "A"),
        (VITAMINS, "C", "Answer: C. Vitamin A", "C"),
        (VITAMINS, "C", "C", "C"),
        (DIGITS, "3", "(3)", "3"),
        (DIGITS, "3", "3) three", "3"),
        (DIGITS, "3", "three", "3"),
        (DIGITS, "3", "Answer: 3", "3"),
        (DIGITS, "3", "It is 3", "3"),
        (DIGITS, "three", "option 3", "3"),
        (COUNTS, "B", "6", "B"),
        (COUNTS, "B", "The action occurs 6 times.", "B"),
        (COUNTS, "B", "B: 6 times", "B"),
        (COUNTS, "6", "B", "B"),
        (COUNTS, "D", "The answer is 5", "D"),
        (SENTENCES, "A", "Yes, it pans to the left.", "A"),
        (SENTENCES, "D", "None of the above", "D"),
        (BARE, "blue", "B", "B"),
        (BARE, "B", "blue", "B"),
        (BARE, "a red car", "D", "D"),
        (BARE, "blue", "(B) blue", "B"),
        (CHINESE, "B", "蓝色", "B"),
        (CHINESE, "A", "红色的", "A"),
        (CHINESE, "B", "应该选 B", "B"),
        (CHINESE, "B", "正确答案：B. 蓝色", "B"),
        (CHINESE, "C", "不是B，是C", "C"),
        (ROUND, "(B)", "blue", "B"),
        (COLONS, "B", "A tiger", "B"),
        (COLONS, "B", "B: A tiger.", "B"),
        (COLONS, "A", "A lion", "A"),
        (MONEY, "C", "$72,000", "C"),
        (MONEY, "C", "72,000", "C"),
        (MONEY, "C", "The conversion cost is $72,000.", "C"),
        (("12:30", "13:30", "14:00"), "13:30", "B", "B"),
        (("12:30", "13:30", "14:00"), "B", "At 13:30", "B"),
        (("3.5 m", "4.5 m", "5.5 m"), "B", "4.5 m", "B"),
        (ORDERS, "B", "table, clock, sofa, lamp.", "B"),
        (SHUFFLED, "B", "Distillation", "B"),
        (SHUFFLED, "A", "A", "A"),
        (ROMAN, "II", "two", "II"),
        (ROMAN, "III", "(iii)", "III"),
        (("a) red", "b) blue"), "b", "B", "B"),
        (("[A] red", "[B] blue"), "B", "[B] blue", "B"),
        (("A - red", "B - blue"), "B", "B - blue", "B"),
        (("A", "B", "C"), "B", "b", "B"),
        (("Yes", "No"), "No", "No.", "B"),
        (("A. Yes", "B. No"), "B", "No, it does not", "B"),
        (("A. ", "B. ", "C. ", "D. "), "C", "The answer is C", "C"),
        ((), "D", "Answer: **D**", "D"),
    ],
)
def test_labels_and_texts_come_from_the_row(options, gold, answer, parsed):
    verdict = verdict_of(answer, gold, options)
    assert (verdict.accuracy, verdict.parsed) == (1.0, parsed)


@pytest.mark.parametrize(
    ("options", "gold", "answer", "status"),
    [
        (VITAMINS, "A", "A. Vitamin D", "ambiguous"),
        (VITAMINS, "A", "Vitamin C or Vitamin D", "ambiguous"),
        (DIGITS, "3", "1 or 3", "ambiguous"),
        (DIGITS, "3", "5", "no_answer"),
        (DIGITS, "3", "There are 3 of them", "no_answer"),
        (COUNTS, "B", "60", "no_answer"),
        (COUNTS, "B", "6.5", "no_answer"),
        (COUNTS, "B", "B. 5", "ambiguous"),
        (COUNTS, "B", "2 or 6", "ambiguous"),
        (SENTENCES, "A", "Yes", "no_answer"),
        (CHINESE, "A", "红色或蓝色", "ambiguous"),
        (MONEY, "C", "172,000", "no_answer"),
        (TEN, "A", "I don't know", "no_answer"),
        (TEN, "I", "I think so", "no_answer"),
        (("A. red", "B. red"), "B", "red", "no_answer"),
    ],
)
def test_what_names_no_single_option_is_wrong(options, gold, answer, status):
    verdict = verdict_of(answer, gold, options)
    assert (verdict.accuracy, verdict.status) == (0.0, status)


@pytest.mark.parametrize(
    "gold",
    ["B", "b", "(B)", "B.", "B. blue", "B) blue", "blue", "Blue.", "<answer>B</answer>", "<answer>B. blue</answer>"],
)
def test_the_gold_names_its_option_in_any_form(gold):
    assert verdict_of("B", gold, COLOURS).accuracy == 1.0
    assert verdict_of("C", gold, COLOURS).accuracy == 0.0


@pytest.mark.parametrize("gold", ["E", "purple", "A and B", "AB"])
def test_a_gold_that_is_no_option_is_an_error(gold):
    with pytest.raises(ValueError, match="names none of the options"):
        verdict_of("B", gold, COLOURS)


@pytest.mark.parametrize("piece", [".", "(", "A or ", "B, ", "the ", "answer ", "not ", "\\boxed{", "_", " ", "红"])
def test_long_odd_answers_take_no_time(piece):
    import time

    start = time.process_time()
    verdict_of(piece * (4000 // len(piece)), "B", COLOURS)
    assert time.process_time() - start < 2.0
