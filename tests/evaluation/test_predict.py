"""A question asked by hand becomes a row, and its reply is shown as the model wrote it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ktr.data.rows import Media
from ktr.evaluation.predict import predict, question_row, render, split_reply


@pytest.mark.parametrize(
    ("reply", "reasoning", "answer"),
    [
        ("<think>a\nb</think><answer> B </answer>", "a\nb", "B"),
        ("<think>never ends", "never ends", None),
        ("<think>left open <answer>7</answer>", "left open", "7"),
        ("just text", "just text", None),
        ("before <answer>yes", "before", "yes"),
        ("", "", None),
    ],
)
def test_split_reply(reply, reasoning, answer):
    assert split_reply(reply) == (reasoning, answer)


def test_question_row_follows_media_and_options():
    row = question_row("Which?", media=Media("video", "/v/clip one.mp4"), options=["red", "blue"])
    assert row.media.path == "/v/clip one.mp4"
    assert (row.problem_type, row.options) == ("multiple choice", ("A. red", "B. blue"))
    assert question_row("What?").problem_type == "free-form"
    with pytest.raises(ValueError, match="question is empty"):
        question_row("  ")


def test_predict_asks_once_and_prints_reply_literally(engine, encoder, greedy):
    engine.wording = "<think>[bold]not markup[/bold]</think><answer>[red]{}</answer>"
    prediction = predict(engine, encoder, question_row("Which?", media=Media("video", "clip.mp4")), greedy, seed=5)
    assert prediction.answer == "[red]A"
    assert engine.calls == [(("question",), 1, 5)]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(prediction))
    text = console.export_text()
    assert "[bold]not markup[/bold]" in text and "[red]A" in text and "cut off" not in text


@pytest.mark.parametrize("kind", ["video", "image"])
def test_media_that_cannot_be_read_are_named_as_the_setting(engine, encoder, greedy, kind):
    row = question_row("Which?", media=Media(kind, "missing.mp4"))
    with pytest.raises(ValueError, match=rf"^{kind}: missing.mp4: no such file \[missing\]$"):
        predict(engine, encoder, row, greedy)


def test_missing_answer_and_cut_off_reply_are_said(engine, encoder, greedy):
    engine.wording, engine.truncated = "<think>{}", True
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(predict(engine, encoder, question_row("Which?"), greedy)))
    text = console.export_text()
    assert "the reply gives no answer" in text and "cut off: raise max_new_tokens" in text
