"""Rows of a run's stages, refused before anything is loaded where a stage could not use them."""

from __future__ import annotations

import json

import pytest

from ktr.config.compose import compose
from ktr.config.overrides import quote
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.data.run_rows import load_run_rows


def settings(path):
    return validate(compose("train", ["data=jsonl", f"data.path={quote(str(path))}"]), TrainConfig).data


def write(path, ids):
    rows = [{"id": id, "question": "what ?", "answer": "red", "problem_type": "free-form"} for id in ids]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_ids_that_repeat_are_refused_where_rows_are_evaluated(tmp_path):
    path = write(tmp_path / "rows.jsonl", ["a", "b", "a"])
    with pytest.raises(
        ValueError, match=r"rows\.jsonl: row ids must be unique in an evaluation; 1 repeat, such as 'a'"
    ):
        load_run_rows(settings(path), stages=["rl", "eval"], eval_splits=["test"], cache=tmp_path)
    trained = load_run_rows(settings(path), stages=["rl"], eval_splits=["test"], cache=tmp_path)
    assert [row.id for row in trained.rl] == ["a", "b", "a"] and trained.eval == []


def test_a_folder_that_holds_no_data_set_is_one_line(tmp_path):
    (tmp_path / "broken.json").write_text('{"a": ')
    with pytest.raises(ValueError, match=r"the folder cannot be read as a data set .*; give a file of rows$"):
        load_run_rows(settings(tmp_path), stages=["rl"], eval_splits=["test"], cache=tmp_path)
