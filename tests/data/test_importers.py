import json
import logging
import time
from pathlib import Path

import pytest

from ktr.data.importers import FORMATS, iter_rows, load_rows
from ktr.data.rows import Media, RowError

VIDEO_R1 = {
    "problem_id": 12,
    "problem": "Which colour?",
    "data_type": "video",
    "problem_type": "multiple choice",
    "options": ["A. red", "B. blue"],
    "solution": "<answer> B </answer>",
    "path": "./v/x.mp4",
    "data_source": "Set",
}
PLAIN = {"id": "a", "question": "How many?", "video": "x.mp4", "start": 1, "end": 2.5}


def write(path: Path, *records: dict, indent: int | None = None) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    else:
        path.write_text(json.dumps(list(records), indent=indent), encoding="utf-8")
    return path


def without(record: dict, key: str) -> dict:
    return {name: value for name, value in record.items() if name != key}


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
def test_video_r1_rows(tmp_path, name):
    cot = VIDEO_R1 | {"process": "<think>\nIt is blue.\n</think>", "problem_id": "b7"}
    first, second = load_rows("video_r1", write(tmp_path / name, VIDEO_R1, cot))
    assert first.id == "12" and first.answer == "B" and first.rationale is None
    assert first.media == Media("video", "./v/x.mp4") and first.source == "Set"
    assert second.id == "b7" and second.rationale == "It is blue."


def test_answers_and_ids_stay_the_text_they_were(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 1.50, "question": "How far?", "answer": 2.00, "problem_type": "regression"}\n')
    [row] = load_rows("plain", file)
    assert (row.id, row.answer) == ("1.50", "2.00")


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (VIDEO_R1 | {"options": None}, "options"),
        (VIDEO_R1 | {"options": []}, "options"),
        (without(VIDEO_R1, "options"), "options"),
        (VIDEO_R1 | {"options": "A. red"}, "options"),
        (VIDEO_R1 | {"options": ["A. red", None]}, "options"),
        (VIDEO_R1 | {"solution": "<answer>C</answer>"}, "answer"),
        (VIDEO_R1 | {"solution": "<answer></answer>"}, "answer"),
        (VIDEO_R1 | {"solution": "<answer>B"}, "solution"),
        (VIDEO_R1 | {"solution": None}, "solution"),
        (without(VIDEO_R1, "problem"), "problem"),
        (VIDEO_R1 | {"problem": ["x"]}, "problem"),
        (without(VIDEO_R1, "path"), "path"),
        (VIDEO_R1 | {"data_type": "audio"}, "data_type"),
        (VIDEO_R1 | {"start": "soon"}, "start"),
        (VIDEO_R1 | {"start": 4, "end": 2}, "start"),
    ],
)
def test_a_wrong_row_names_file_line_and_field(tmp_path, record, field):
    file = write(tmp_path / "rows.json", VIDEO_R1 | {"problem_id": 11}, record, indent=1)
    second_line = 2 + json.dumps(VIDEO_R1, indent=1).count("\n") + 1
    with pytest.raises(RowError) as caught:
        load_rows("video_r1", file)
    assert caught.value.field == field
    for part in (str(file), f"line {second_line}", "row 1", "'12'"):
        assert part in str(caught.value)


def test_rejects_are_collected_when_asked(tmp_path):
    rejects: list[RowError] = []
    file = write(tmp_path / "rows.jsonl", VIDEO_R1, VIDEO_R1 | {"options": []}, VIDEO_R1 | {"problem_id": 3})
    rows = load_rows("video_r1", file, rejects=rejects)
    assert [row.id for row in rows] == ["12", "3"]
    assert [(error.line, error.field) for error in rejects] == [(2, "options")]


def test_duplicate_ids_are_reported(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        load_rows("video_r1", write(tmp_path / "rows.jsonl", VIDEO_R1, VIDEO_R1))
    assert "1 ids occur more than once, such as 12" in caplog.text


def test_a_limit_stops_before_what_follows(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(VIDEO_R1) + "\nnot json\n")
    assert len(load_rows("video_r1", file, limit=1)) == 1


def test_unlabelled_options_get_letters_and_the_gold_text_its_letter(tmp_path):
    record = {"question": "Which?", "options": ["red", "blue"], "answer": "blue", "image": "x.png"}
    [row] = load_rows("plain", write(tmp_path / "rows.jsonl", record))
    assert (row.options, row.answer, row.problem_type) == (("A. red", "B. blue"), "B", "multiple choice")
    assert row.id == "rows-0" and row.modality == "image"


def test_the_gold_is_the_last_tagged_answer(tmp_path):
    record = VIDEO_R1 | {"solution": "<think>maybe <answer>A</answer></think><answer>B</answer>"}
    assert load_rows("video_r1", write(tmp_path / "rows.jsonl", record))[0].answer == "B"


@pytest.mark.parametrize("gold", ["B", "(B)", "B.", "B. blue", "blue"])
def test_gold_forms_of_a_choice(tmp_path, gold):
    record = VIDEO_R1 | {"solution": f"<answer>{gold}</answer>"}
    assert load_rows("video_r1", write(tmp_path / "rows.jsonl", record))[0].answer == "B"


def test_plain_rows_of_every_file_type_agree(tmp_path):
    import pyarrow
    import pyarrow.parquet

    record = PLAIN | {"options": ["A. 4", "B. 5"], "problem_type": "multiple choice", "answer": "B"}
    lines = write(tmp_path / "rows.jsonl", record)
    array = write(tmp_path / "rows.json", record)
    table = tmp_path / "rows.csv"
    table.write_text(
        "id,question,answer,problem_type,video,start,end,options,category\n"
        'a,How many?,B,multiple choice,x.mp4,1,2.5,"[""A. 4"", ""B. 5""]",\n'
    )
    columns = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([record]), columns)
    expected = load_rows("plain", lines)
    assert expected[0].media == Media("video", "x.mp4", 1.0, 2.5)
    for file in (array, table, columns):
        assert load_rows("plain", file) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b'[\n{"a": 1},\n{"a": }\n]', "line 3"),
        ("a.json", b'[{"a": 1} {"a": 2}]', "breaks off"),
        ("a.json", b'[{"a": 1}', "breaks off"),
        ("a.json", b"[]", "no rows"),
        ("a.json", b"", "no rows"),
        ("a.json", b"[5]", "object, not the text or number 5"),
        ("a.json", b"[NaN]", "object, not the text or number nan"),
        ("a.json", b'["a row"]', "object, not the text or number a row"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "line [12]"),
        ("a.jsonl", b'{"a": "\xff"}\n', "UTF-8"),
        ("a.csv", b"id,question\n1,2,3\n", "line 2.*cells"),
        ("a.csv", b"id,question,options\n1,x,red\n", "options.*JSON list"),
        ("a.parquet", b"PAR1 no", "parquet"),
    ],
)
def test_an_unreadable_file_is_named_with_the_line(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(RowError, match=message) as caught:
        list(iter_rows("plain", file, rejects=[] if name == "a.json" and b'"a": 1' in content else None))
    assert str(file) in str(caught.value)


def test_a_missing_file_and_an_unknown_format(tmp_path):
    with pytest.raises(RowError, match="no such file"):
        load_rows("plain", tmp_path / "none.json")
    with pytest.raises(ValueError, match="known: video_r1"):
        load_rows("video-r1", tmp_path / "none.json")


def test_byte_order_mark_and_blank_lines_are_skipped(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(VIDEO_R1).encode() + b"\n\n")
    assert len(load_rows("video_r1", file)) == 1


def test_rewatch_options_leave_the_question(tmp_path):
    record = {
        "problem_id": "v_order",
        "question_type": "order",
        "multiple_choice": True,
        "problem": "Note A: what is first?\nA: a row\nof balls\nB: Plan B: a cue",
        "data_type": "video",
        "videos": "v.mp4",
        "answer": "A",
        "duration": 972,
    }
    [row] = load_rows("rewatch_qa", write(tmp_path / "qa.jsonl", record))
    assert row.question == "Note A: what is first?"
    assert row.options == ("A: a row\nof balls", "B: Plan B: a cue")
    assert (row.duration, row.category, row.problem_type) == (972.0, "order", "multiple choice")
    with pytest.raises(RowError, match="holds no options"):
        load_rows("rewatch_qa", write(tmp_path / "bad.jsonl", record | {"problem": "What is first?"}))


def test_rewatch_captions_become_a_captioning_row(tmp_path):
    events = [{"start": 0.0, "end": 3.0, "caption": "A table."}, {"start": 61, "end": 62.4, "caption": "A cue."}]
    record = {"video": "v.mp4", "duration": 90, "events": events}
    [row] = load_rows("rewatch_captions", write(tmp_path / "captions.jsonl", record))
    assert row.answer == "00:00-00:03: A table.\n01:01-01:02: A cue."
    assert row.id == "v.mp4" and row.problem_type == row.task == "captioning" and row.captions == row.answer
    with pytest.raises(RowError, match="events"):
        load_rows("rewatch_captions", write(tmp_path / "bad.jsonl", record | {"events": [{"start": 3, "end": 1}]}))


@pytest.mark.parametrize("name", ["cot", "rl"])
def test_published_video_r1_examples(fixtures, name):
    rows = load_rows("video_r1", fixtures / "annotations" / f"video_r1_{name}_style.json")
    assert [row.answer for row in rows] == ["B", "A", "C", "6", "a wooden billiard cue", "22.03"]
    assert all((row.rationale is None) == (name == "rl") for row in rows)


def test_published_rewatch_examples(fixtures):
    first, second, third = load_rows("rewatch_qa", fixtures / "annotations" / "rewatch_qa_style.jsonl")
    assert first.options[3] == "D: A silver chain" and first.question.endswith("appearance in the bar?")
    assert second.problem_type == "open-ended" and second.answer == "A silver chain"
    assert third.media == Media("video", "billiards.mp4")
    [captions] = load_rows("rewatch_captions", fixtures / "annotations" / "rewatch_caption_style.jsonl")
    assert captions.duration == 22.03


def test_published_benchmark_examples(fixtures):
    files = sorted((fixtures / "benchmarks").iterdir())
    rows = {file.stem: load_rows("benchmark", file) for file in files}
    assert len(rows) == 20 and all(rows.values())
    assert rows["charades_sta"][0].answer == '{"time": [3.400390625, 11.796875], "boxes": {}}'
    assert rows["ovobench"][0].problem_type == "CRR"
    assert {row.category for row in rows["videomme"]} > {"Action Reasoning"}
    assert "object_counting" in {row.category for row in rows["vsibench"]}
    assert rows["longvideoreason"][0].options[0] == "B. Distillation"
    assert all("<" not in row.answer for part in rows.values() for row in part)


def test_formats_are_documented():
    import ktr.data.importers as module

    assert all(f"`{name}`" in module.__doc__ for name in FORMATS)


def test_many_rows_are_read_quickly(tmp_path):
    file = write(tmp_path / "rows.jsonl", *(VIDEO_R1 | {"problem_id": number} for number in range(10_000)))
    taken = []
    for _ in range(3):  # The best of three: others use this machine too.
        begin = time.process_time()
        assert len(load_rows("video_r1", file)) == 10_000
        taken.append(time.process_time() - begin)
    assert min(taken) < 1.0


HOLMES = {
    "video ID": "Abc-1",
    "Question ID": 7,
    "Question Type": "SR",
    "Question": "Who is she?",
    "Options": {"B": "his aunt", "A": "his sister"},
    "Answer": "B",
    "Explanation": "They call her aunt.",
}


def test_video_holmes_as_published(tmp_path):
    (row,) = load_rows("video_holmes", write(tmp_path / "rows.json", HOLMES))
    assert (row.id, row.media) == ("Abc-1-7", Media("video", "videos_cropped/Abc-1.mp4"))
    assert row.options == ("A. his sister", "B. his aunt") and (row.answer, row.category) == ("B", "SR")
    assert row.rationale == "They call her aunt." and row.problem_type == "multiple choice"
    with pytest.raises(RowError, match="field 'Options'"):
        load_rows("video_holmes", write(tmp_path / "wrong.json", without(HOLMES, "Options")))


TURNS = [
    {"from": "human", "value": "<video>\nWhat moves?"},
    {"from": "gpt", "value": "A red car."},
    {"from": "human", "value": "Where to?"},
    {"from": "gpt", "value": "Left."},
]


def test_a_conversation_becomes_a_row_a_question(tmp_path):
    record = {"id": 5, "video": "v/x.mp4", "conversations": TURNS, "data_source": "set"}
    first, second = load_rows("conversations", write(tmp_path / "rows.json", record))
    assert (first.id, first.question, first.answer) == ("5-0", "What moves?", "A red car.")
    assert (second.id, second.question, second.answer) == ("5-1", "Where to?", "Left.")
    assert first.media == second.media == Media("video", "v/x.mp4") and first.source == "set"


def test_messages_with_roles_are_conversations_too(tmp_path):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "<image>What is it?"},
        {"role": "assistant", "content": "A cat."},
    ]
    (row,) = load_rows("conversations", write(tmp_path / "r.jsonl", {"messages": messages, "image": ["c.png"]}))
    assert (row.id, row.question, row.answer, row.media) == ("r-0", "What is it?", "A cat.", Media("image", "c.png"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conversations": TURNS[:3]}, "must take turns, not person, model, person"),
        ({"conversations": []}, "list of turns"),
        ({"conversations": [{"from": "robot", "value": "x"}]}, "'robot' is none of"),
        ({"video": ["a.mp4", "b.mp4"]}, "2 files are given"),
        ({"image": "a.png"}, "a video or an image, not both"),
    ],
)
def test_a_wrong_conversation_is_named(tmp_path, change, message):
    record = {"id": 5, "video": "v/x.mp4", "conversations": TURNS} | change
    with pytest.raises(RowError, match=message) as caught:
        load_rows("conversations", write(tmp_path / "rows.json", record))
    assert "id '5'" in str(caught.value)


def test_a_broken_line_costs_that_line_alone_when_rejects_are_collected(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = json.dumps(PLAIN | {"answer": "3"})
    path.write_bytes(good.encode() + b'\n{"id": \n\xff\n[1]\n' + good.encode())
    rejects = []
    assert len(load_rows("plain", path, rejects=rejects)) == 2
    assert [error.line for error in rejects] == [2, 3, 4]
    with pytest.raises(RowError, match="line 2"):
        load_rows("plain", path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '[1, 2]\n{"question": "q", "answer": "a"}\n'),
        ("a.json", '[[1, 2], {"question": "q", "answer": "a"}]'),
    ],
)
def test_a_row_that_is_a_list_is_a_bad_row_and_no_bad_file(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    rejects: list[RowError] = []
    assert [row.answer for row in iter_rows("plain", path, rejects=rejects)] == ["a"]
    assert [error.problem for error in rejects] == ["a row is an object, not a list"]
    assert (rejects[0].line, rejects[0].index) == (1, 0)


def test_an_array_of_rows_may_begin_with_a_line_that_looks_whole(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"question": "q", "answer": "A", "options": ["A. b"]\n}]\n')
    assert len(list(iter_rows("plain", path))) == 1
