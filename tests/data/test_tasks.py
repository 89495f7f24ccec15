"""Captions joined to rows by their media, and the rows of the three tasks that are learned together."""

from __future__ import annotations

import json
import logging

import pytest

from ktr.config.compose import compose
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Media, Row, RowError
from ktr.data.run_rows import load_run_rows
from ktr.data.tasks import captions_by_path, task_rows, with_captions

CAPTION = {"video": "v/a.mp4", "duration": 90, "events": [{"start": 0, "end": 3, "caption": "A table."}]}
LINES = "00:00-00:03: A table."


def row(name: str, video: str | None = "v/a.mp4", **values) -> Row:
    media = None if video is None else Media("video", video)
    return Row(name, "What is there?", media, "open-ended", (), "A table", duration=90.0, **values)


def test_captions_reach_all_rows_of_their_video(caplog):
    captions = {"v/a.mp4": LINES}
    with caplog.at_level(logging.WARNING):
        found = with_captions([row("1"), row("2", "./v/a.mp4"), row("3", "b.mp4"), row("4", None)], captions, "c.jsonl")
    assert [one.captions for one in found] == [LINES, LINES, None, None]
    assert "c.jsonl has no captions for 2 of 4 rows" in caplog.text


def test_captions_of_other_videos_are_refused():
    with pytest.raises(ValueError, match="c.jsonl has captions for none of the 1 rows.*'b.mp4'.*'v/a.mp4'"):
        with_captions([row("1", "b.mp4")], {"v/a.mp4": LINES}, "c.jsonl")


def test_a_rows_own_captions_stay():
    assert with_captions([row("1", captions="own")], {"v/a.mp4": LINES}, "c.jsonl")[0].captions == "own"


def test_one_video_is_captioned_once_and_each_task_has_its_rows():
    rows = [row("1", rationale="I look.", captions=LINES), row("2", captions=LINES), row("3", "b.mp4", rationale="So.")]
    found = task_rows(rows, ["captioning", "direct", "reasoning"])
    assert [(one.task, one.id) for one in found] == [
        ("captioning", "1-captioning"), ("direct", "1-direct"), ("direct", "2-direct"), ("direct", "3-direct"),
        ("reasoning", "1"), ("reasoning", "3"),
    ]  # fmt: skip
    assert found[0].answer == LINES and found[0].media == rows[0].media and found[0].duration == 90.0


def test_reasoning_alone_leaves_rows_as_they_are():
    rows = [row("1"), row("2", rationale="So.")]
    assert task_rows(rows, ["reasoning"]) == rows


def test_a_task_without_rows_is_named():
    with pytest.raises(ValueError, match="'captioning' of data.sft_tasks has no rows.*data.captions_path"):
        task_rows([row("1", rationale="So.")], ["captioning", "reasoning"])
    with pytest.raises(ValueError, match="'reasoning' of data.sft_tasks has no rows.*rationale"):
        task_rows([row("1", captions=LINES)], ["captioning", "reasoning"])


def test_an_unknown_task_is_refused():
    with pytest.raises(RowError, match="unknown task 'dance'; known: reasoning, direct, captioning"):
        row("1", task="dance")


@pytest.mark.parametrize("name", ["rewatch", "think", "toy"])
def test_each_task_has_its_own_instruction_and_reply(name):
    template = PromptTemplate.load(name)
    rows = task_rows([row("1", rationale="I look.", captions=LINES)], ["captioning", "direct", "reasoning"])
    prompts, replies = [template.render(one) for one in rows], [template.target(one) for one in rows]
    assert len(set(prompts)) == 3
    assert replies == [
        f"<answer>{LINES}</answer>", "<answer>A table</answer>", "<think>I look.</think><answer>A table</answer>",
    ]  # fmt: skip
    assert [template.wants_rationale(one) for one in rows] == [False, False, True]
    if name == "rewatch":
        assert all("Video: 00:00-01:30" in prompt for prompt in prompts)
        assert "Inside <answer>, write only the answer." in prompts[1] and "Options" not in prompts[1]


def test_a_prompt_without_a_wording_for_a_task_says_so(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("text: '{question}'")
    with pytest.raises(ValueError, match="prompt 'mine' has no wording for the task 'direct'; it has reasoning"):
        PromptTemplate.load(file).target(row("1", task="direct"))
    file.write_text("text: '{question}'\ntasks: {dance: {text: '{question}'}}")
    with pytest.raises(ValueError, match="unknown task 'dance'; known: direct, captioning"):
        PromptTemplate.load(file)
    file.write_text("text: '{question}'\ntasks: {direct: {text: '{question}', tasks: {}}}")
    with pytest.raises(ValueError, match="unknown key 'tasks'"):
        PromptTemplate.load(file)


def test_a_run_reads_captions_for_training_and_tasks_for_the_warm_up(tmp_path):
    qa = {"problem_id": "1", "problem": "What is there?", "multiple_choice": False, "videos": "v/a.mp4",
          "answer": "A table", "duration": 90, "process": "<think>I look.</think>"}  # fmt: skip
    for name, record in (("qa", qa), ("captions", CAPTION), ("eval", qa | {"videos": "other.mp4"})):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    overrides = [f"data.{key}={tmp_path}/{name}.jsonl" for key, name in (
        ("path", "qa"), ("captions_path", "captions"), ("eval_path", "eval"),
    )]  # fmt: skip
    config = validate(compose("train", ["experiment=rewatch_r1_sft", *overrides]), TrainConfig)
    rows = load_run_rows(config.data, stages=["sft", "rl", "eval"], eval_splits=[], cache=tmp_path)
    assert [one.task for one in rows.sft] == ["captioning", "direct", "reasoning"]
    assert [one.captions for one in rows.rl] == [LINES] and [one.task for one in rows.rl] == ["reasoning"]
    assert [one.captions for one in rows.eval] == [None]
    assert captions_by_path(rows.sft) == {"v/a.mp4": LINES}
