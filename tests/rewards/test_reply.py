from __future__ import annotations

import pytest

from ktr.rewards.reply import format_score, read_reply, strip_end_tokens


@pytest.mark.parametrize(
    "reply",
    [
        "<think>t</think><answer>B</answer>",
        "<think>\nline 1\nline 2\n</think>\n<answer>B</answer>",
        " <think>t</think>\n\n<answer>B</answer>\n",
        "<think>t</think><answer>B</answer><|im_end|>",
        "<think>t</think><answer>B</answer><|im_end|>\n<|endoftext|><|endoftext|>",
        "<think>t</think><answer>B</answer> </s>",
        "<think>1 < 2 and <b>bold</b></think><answer>x</answer>",
        "<think><action>look</action><observation>a car</observation></think><answer>x</answer>",
    ],
)
def test_well_formed(reply):
    assert format_score(reply) == 1.0
    assert read_reply(reply).status == "ok"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<Think>t</Think><Answer>B</Answer>", "B"),
        ("<think>t</think><ANSWER>B</ANSWER>", "B"),
        ("<think>t</think>< answer >B</ answer >", "B"),
        ("<think>t</think>So <answer>B</answer>", "B"),
        ("Well. <think>t</think><answer>B</answer>", "B"),
        ("<think>t</think><answer>B</answer> Done.", "B"),
        ("<answer>B</answer>", "B"),
        ("t</think><answer>B</answer>", "B"),
        ("maybe <answer>A</answer></think><answer>B</answer>", "B"),
        ("<think></think><answer>B</answer>", "B"),
        ("<think> \n </think><answer>B</answer>", "B"),
        ("<think>maybe <answer>A</answer></think><answer>B</answer>", "B"),
        ("<THINK>maybe <answer>A</answer></THINK><answer>B</answer>", "B"),
        ("<think>I write <answer> tags</think><answer>B</answer>", "B"),
        ("<think>a<think>b</think><answer>B</answer>", "B"),
        ("<think>t<answer>B</answer>", "B"),
        ("<think>t</think><answer>B</answer></answer>", "B"),
        ("<think>t</think><answer>B</answer><think>u</think>", "B"),
        ("<think>t</think><answer>B</answer><think>more", "B"),
    ],
)
def test_read_but_not_rewarded(reply, answer):
    assert format_score(reply) == 0.0
    assert read_reply(reply) == (answer, "ok", True)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("<think>t</think><answer>B", "truncated"),
        ("<think>t</think><answer>", "truncated"),
        ("<think>still thinking", "truncated"),
        ("<think>maybe <answer>A</answer> but", "truncated"),
        ("<think>t</think>", "no_answer"),
        ("<think>t</think>B", "no_answer"),
        ("B", "no_answer"),
        ("", "no_answer"),
        ("<|im_end|>", "no_answer"),
        ("<think>t</think><answer> \n</answer>", "no_answer"),
        ("<think>t</think><answer>A</answer><think>t</think><answer>B</answer>", "ambiguous"),
        ("<think>t</think><answer>B</answer><answer>B</answer>", "ambiguous"),
        ("<think>t</think><answer>B</answer><answer>C", "ambiguous"),
        ("<think>t</think><answer>A<answer>B</answer></answer>", "ambiguous"),
    ],
)
def test_nothing_is_guessed(reply, status):
    assert format_score(reply) == 0.0
    read = read_reply(reply)
    assert (read.answer, read.status) == (None, status)


def test_truncated_blocks_stay_unread_without_required_tags():
    assert read_reply("<think>t</think><answer>B", require_tags=False).status == "truncated"
    assert read_reply("<think>B", require_tags=False).status == "truncated"
    assert read_reply("<think>t</think> B <|im_end|>", require_tags=False) == ("B", "ok", False)
    assert read_reply("  ", require_tags=False).status == "no_answer"


def test_end_tokens_are_stripped_only_at_the_end():
    assert strip_end_tokens(" a <|im_end|> b<|im_end|>\n<pad><pad> ") == "a <|im_end|> b"
    assert strip_end_tokens("x > y") == "x > y"
