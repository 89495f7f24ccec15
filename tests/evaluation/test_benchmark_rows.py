"""Facets, formats and subtitles of benchmark files."""

from __future__ import annotations

import json

import pytest

from ktr.evaluation.benchmark_rows import detect_format, load_benchmark_rows, read_srt

SRT = "1\n00:00:01,500 --> 00:00:03,000\n<i>Hello</i>\nthere\n\n2\n01:00:00.000 --> 01:00:02.000\nBye\n\nnot a cue\n"


@pytest.fixture
def rows_file(tmp_path):
    rows = [
        {"problem_id": i, "problem": "Why?", "data_type": "video", "problem_type": "multiple choice",
         "options": ["A. x", "B. y"], "solution": "<answer>A</answer>", "path": f"v{i}.mp4",
         "duration": ("short", "long")[i % 2], "ocr": i % 2, "subtitle": SRT if i == 0 else ""}
        for i in range(4)
    ]  # fmt: skip
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))
    return file


def test_facets_are_columns_of_the_file(rows_file, caplog):
    found = load_benchmark_rows(rows_file, facets={"length": "none|duration", "ocr": "ocr", "mood": "mood"}, limit=3)
    assert len(found.rows) == 3
    assert found.facets["1"] == {"length": "long", "ocr": "1"}
    assert "lack the columns of mood" in caplog.text


def test_the_format_shows_in_the_first_row(rows_file, tmp_path):
    assert detect_format(rows_file) == "benchmark"
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"id": 1, "question": "?", "answer": "red"}\n')
    assert detect_format(plain) == "plain"


def test_cues_of_a_subtitle_file():
    assert read_srt(SRT) == [(1.5, "Hello there"), (3600.0, "Bye")]


def test_subtitles_stand_before_the_question(rows_file, tmp_path):
    found = load_benchmark_rows(rows_file, subtitles="rows")
    assert found.with_subtitles == 1
    assert found.rows[0].question == "Subtitles of the video:\nHello there\nBye\n\nWhy?"
    assert found.rows[1].question == "Why?"
    folder = tmp_path / "srt"
    folder.mkdir()
    (folder / "v1.srt").write_text("\n\n".join(f"{i}\n00:00:0{i},000 --> 00:00:0{i},900\nline {i}" for i in range(8)))
    found = load_benchmark_rows(rows_file, subtitles=folder, subtitle_lines=2)
    assert [row.question.startswith("Subtitles") for row in found.rows] == [False, True, False, False]
    assert "line 2\nline 6" in found.rows[1].question
    with pytest.raises(ValueError, match="no folder"):
        load_benchmark_rows(rows_file, subtitles=tmp_path / "nowhere")


def test_pairs_of_a_question_get_ids_of_their_own(tmp_path):
    row = {"problem": "How many?", "data_type": "video", "problem_type": "multiple choice", "path": "a.mp4",
           "options": ["A. 1", "B. 2"], "solution": "<answer>A</answer>"}  # fmt: skip
    rows = [row | {"problem_id": "q", "mbinary_id": 31}, row | {"problem_id": "q", "mbinary_id": 32},
            row | {"problem_id": "r", "mbinary_id": 41}, row | {"problem_id": "s"}]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row.id for row in load_benchmark_rows(path).rows] == ["q-31", "q-32", "r", "s"]


def test_published_rows_of_tempcompass(tmp_path):
    path = tmp_path / "multi-choice.json"
    path.write_text(json.dumps([
        {"video_id": "1", "dim": "speed", "question": "How fast?\nA. slow\nB. fast", "answer": "B. fast"},
        {"video_id": "1", "dim": "order", "question": "Is it slow?", "answer": "no"},
        {"video_id": "2_reverse", "dim": "order", "answer": "Option 2: It falls.",
         "question": "Which description is a more suitable match?\nOption 1: It rises.\nOption 2: It falls."},
        {"video_id": "3", "dim": "order", "answer": "Caption A", "question": "Which?\nCaption A: Up\nCaption B: No"},
    ]))  # fmt: skip
    choice, yes_no, caption, named = load_benchmark_rows(path).rows
    assert (choice.question, choice.options, choice.answer) == ("How fast?", ("A. slow", "B. fast"), "B")
    assert (yes_no.problem_type, yes_no.answer, yes_no.category) == ("yes/no", "no", "order")
    assert caption.options == ("A. Option 1: It rises.", "B. Option 2: It falls.")
    assert (caption.answer, caption.media.path) == ("B", "2_reverse.mp4")
    assert named.answer == "A"
