"""Replies without tags get the verdict of the benchmark's own rules, wherever those decide without a judge.

TempCompass (arXiv 2403.00476; the eval_*.py of its repository): a choice
is read from a reply that is the answer's line, a bare letter, or begins with `A.` or `A)`; yes/no from its first word;
a caption from the whole line, the caption alone, its name ("Caption A"), or a caption behind `X) `.
"""

from __future__ import annotations

import pytest

from ktr.rewards import score_reply

CHOICES = [
    ("A. dunking a basketball", "B. dribbling a basketball", "C. passing a basketball"),
    ("A. away from the camera", "B. towards the camera", "C. from left to right"),
    ("A. moving towards the camera", "B. moving from right to left", "C. no change", "D. moving from left to right"),
    ("A. 2x speed", "B. 1x speed", "C. 10x speed", "D. 0.5x speed"),
    ("A. A person drops the fruit", "B. A person lifts the fruit", "C. A person turns the fruit"),
]
CHOICE_STYLES = [
    "{line}", "{letter}", "{letter}.", "{letter})", "{line}.", "{letter}) {text}", "{letter}.{text}", "{line}\n",
    "{letter}. {other}", "{letter}) {other}", "{letter}. The video shows {other}.", "{line}\n{other_line}",
    "{line}, {other_line}", "{line} and {other}", "{line}\n\nExplanation: it is not {other}.", "{letter}. None of them",
    "{letter}. I am not sure", "{line}. A man is seen.", "{letter}. Yes", "{letter}. {letter}", "{letter}. not {text}",
    "{letter}. The correct answer is {letter}.", "{line} {text} {text}", "{line}</s>",
]  # fmt: skip
YES_NO_STYLES = [
    "{word}", "{word}.", "{word}, the man is running.", "{word} the man is running", "{word}, no one is running.",
    "{word} there is no man", "{word}, it is not.", "{word}! It moves", "{word} - the man", "{word} (the man)",
    "{word} he does. No other person is seen", "{word}, the correct answer is that the man runs", "{word}\n",
]  # fmt: skip
CAPTIONS = [
    ("Option 1: The man is dribbling.", "Option 2: A man is dunking."),
    ("Sentence A: A man is dunking.", "Sentence B: A video showing a person passing."),
    ("Caption A: The video is in slow motion.", "Caption B: The video is in slow motion and then fast."),
]
CAPTION_STYLES = [
    "{line}",
    "{name}",
    "{name}.",
    "The video better matches {name}.",
    "{text}",
    "({label}) {text}",
    "{label}) {text}",
    "{name}) {text}",
]


def accuracy(reply: str, problem_type: str, gold: str, options: tuple[str, ...] = ()) -> float | None:
    verdict = score_reply(reply, problem_type=problem_type, gold=gold, options=options, require_tags=False)
    return verdict.accuracy


@pytest.mark.parametrize("style", CHOICE_STYLES)
@pytest.mark.parametrize("options", CHOICES)
def test_the_letter_that_opens_the_reply_is_the_choice(options, style):
    for said, line in enumerate(options):
        other = options[(said + 1) % len(options)]
        reply = style.format(line=line, letter=line[0], text=line[3:], other=other[3:], other_line=other)
        for gold, right in enumerate(options):
            assert accuracy(reply, "multiple choice", right[0], options) == float(said == gold), (reply, right)


@pytest.mark.parametrize("style", YES_NO_STYLES)
@pytest.mark.parametrize("word", ["Yes", "No", "yes", "NO"])
def test_yes_and_no_are_read_from_the_first_word(style, word):
    reply = style.format(word=word)
    for gold in ("yes", "no"):
        right = float(word.lower() == gold)
        assert accuracy(reply, "yes/no", gold) == right
        letter = "A" if gold == "yes" else "B"
        assert accuracy(reply, "multiple choice", letter, ("A. yes", "B. no")) == right


@pytest.mark.parametrize(("reply", "right"), [("Not at all.", 1.0), ("Never", 1.0), ("Not sure", 0.0), ("Both", 0.0)])
def test_what_else_says_no(reply, right):
    assert accuracy(reply, "yes/no", "no") == right


@pytest.mark.parametrize("style", CAPTION_STYLES)
@pytest.mark.parametrize("options", CAPTIONS)
@pytest.mark.parametrize("form", ["as published", "lettered", "texts"])
def test_captions_are_named_by_line_text_or_name(options, style, form):
    given = {
        "as published": options,
        "lettered": tuple(f"{letter}. {line}" for letter, line in zip("AB", options, strict=True)),
        "texts": tuple(f"{letter}. {line.split(': ')[1]}" for letter, line in zip("AB", options, strict=True)),
    }[form]
    for said, line in enumerate(options):
        name, text = line.split(": ")
        reply = style.format(line=line, name=name, text=text, label=name[-1])
        for gold in range(2):
            right = options[gold] if form == "as published" else "AB"[gold]
            assert accuracy(reply, "multiple choice", right, given) == float(said == gold), (reply, right)


def test_a_name_beyond_the_options_is_no_answer():
    assert accuracy("Option 3", "multiple choice", "A", ("A. left", "B. right")) == 0.0


@pytest.mark.parametrize(
    "reply",
    [
        "A) opens: incorrect.\nB) closes: correct.", "A. is wrong.", "It could be A. or B.", "A or B",
    ],
)  # fmt: skip
def test_a_letter_that_opens_a_discussion_is_no_choice(reply):
    assert accuracy(reply, "multiple choice", "A", ("A. opens", "B. closes")) == 0.0


@pytest.mark.parametrize(
    ("reply", "tags", "right"),
    [
        ("<answer>B</answer><answer>B</answer>", False, 1.0),
        ("<answer>B<answer>", False, 1.0),
        ("<think>x</think><answer><answer>B</answer></answer>", False, 1.0),
        ("<answer>A</answer><answer>B</answer>", False, 0.0),
        ("<answer>B</answer><answer>B</answer>", True, 0.0),
        ('{"reasoning": "It could be A", "final_answer": "B"}', False, 1.0),
        ('```json\n{"answer": "B", "confidence": 0.9}\n```', False, 1.0),
        ('{"answer": "A"} or B', False, 0.0),
    ],
)
def test_repeated_tags_and_json(reply, tags, right):
    verdict = score_reply(
        reply, problem_type="multiple choice", gold="B", options=("A. left", "B. right"), require_tags=tags
    )
    assert verdict.accuracy == right


SPECIES = ("A. a grey cat", "B. a brown dog", "C. a white horse", "D. none of them")
OPENINGS = ["", "Let me look at the video.\n", "**Step 1:** Watch.\n**Step 2:** Compare.\n", "I see a man. "]
REASONING = [
    "", "At first I considered {other}, but the frames contradict it. ", "- {other}. {text}: not seen.\n",
    "First, option {other} ({text}) is never shown. ", "Although {text} looks plausible, it is not supported. ",
    "{other} is incorrect because the scene is different. ", "The options are:\n{all}\n\n",
    "Wait, maybe it's {other}? No, that is wrong. ",
]  # fmt: skip
CONCLUSIONS = [
    "So the answer is B.", "Therefore, the final answer is: B", "**Final Answer: B. a brown dog**", "\n\nB",
    "\n\n**B**",
    "Final Answer: $\\boxed{{B}}$", "\n\nB. a brown dog", "This corresponds to option B.", "B best matches the video.",
    "Among the choices, B fits best.", "So I choose B.", "which matches option B.", "The correct answer is:\n\n**B**",
    "因此正确答案是B。", "Hence the answer would be option (B).", "<answer>B. a brown dog</answer>",
]  # fmt: skip


@pytest.mark.parametrize("conclusion", CONCLUSIONS)
@pytest.mark.parametrize("reasoning", REASONING)
@pytest.mark.parametrize("opening", OPENINGS)
def test_the_conclusion_of_a_reasoned_reply_decides(opening, reasoning, conclusion):
    for other, line in zip("ACD", (SPECIES[0], SPECIES[2], SPECIES[3]), strict=True):
        reply = (opening + reasoning + conclusion).format(other=other, text=line[3:], all="\n".join(SPECIES))
        assert accuracy(reply, "multiple choice", "B", SPECIES) == 1.0, reply
        assert accuracy(reply, "multiple choice", other, SPECIES) == 0.0, reply


@pytest.mark.parametrize(
    "reply",
    [
        "The frame does not correspond to option B.", "I do not choose B.", "It could be either.\n\nB or C",
        "The options are:\nA. a cat\nB. a dog",
        "I cannot answer without a video.", "First B, then C, then A.",
    ],
)  # fmt: skip
def test_a_reply_without_a_conclusion_is_not_read_as_one(reply):
    assert accuracy(reply, "multiple choice", "B", SPECIES) == 0.0


@pytest.mark.parametrize(
    "reply",
    [
        "From the frames at 0:05 and 0:12, I can see it. The distance is approximately 3.5 meters.",
        "The table is 1.5 m long.\n\n**3.5 meters**", "A door has 2 m, the hall 5.5 m, so 5.5 - 2 = 3.5", "≈ 3.5 m²",
        '{"reasoning": "two doors of 2 m", "answer": 3.5}', "答案：3.5米",
    ],
)  # fmt: skip
def test_the_number_a_reply_comes_to(reply):
    assert accuracy(reply, "regression", "3.5") == 1.0
