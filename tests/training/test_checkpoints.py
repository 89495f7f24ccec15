"""Checkpoints are whole or absent: torn ones are found, and writing that fails leaves the one before."""

from __future__ import annotations

import json
import resource
import shutil

import pytest
from resume_cases import train, weights
from trainer_cases import make_rows
from transformers import AutoProcessor, TrainerCallback

from ktr.models.loading import load_model
from ktr.training.checkpoints import (
    MANIFEST,
    STAGING,
    CheckpointError,
    checkpoint_step,
    checkpoints_in,
    defect,
    newest_whole,
    publish,
    rotate,
)


def make(folder, step, text="weights"):
    staged = folder / STAGING / "any"
    (staged / "inner").mkdir(parents=True)
    (staged / "model.bin").write_text(text)
    (staged / "inner" / "state.json").write_text("{}")
    publish(staged, folder / f"checkpoint-{step}")
    return folder / f"checkpoint-{step}"


def test_a_checkpoint_lists_what_it_holds(tmp_path):
    path = make(tmp_path, 3)
    assert set(json.loads((path / MANIFEST).read_text())["files"]) == {"model.bin", "inner/state.json"}
    assert defect(path) is None and newest_whole(tmp_path) == path


def cut(path):
    path.write_text("weigh")


def change(path):
    path.write_text("Weights")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path: cut(path / "model.bin"), "model.bin has 5 bytes of 7"),
        (lambda path: change(path / "model.bin"), "model.bin is not what was written"),
        (lambda path: (path / "inner" / "state.json").unlink(), "inner/state.json is missing"),
        (lambda path: (path / MANIFEST).unlink(), f"it has no {MANIFEST}"),
        (lambda path: cut(path / MANIFEST), f"its {MANIFEST} cannot be read"),
    ],
)
def test_a_torn_checkpoint_gives_way_to_the_one_before(tmp_path, caplog, harm, told):
    before, newest = make(tmp_path, 9), make(tmp_path, 10)
    harm(newest)
    assert told in defect(newest)
    assert newest_whole(tmp_path) == before
    assert told in caplog.text and (tmp_path / "torn-10").is_dir() and checkpoints_in(tmp_path) == [before]


def test_no_whole_checkpoint(tmp_path):
    assert newest_whole(tmp_path / "absent") is None
    (make(tmp_path, 1) / MANIFEST).unlink()
    assert newest_whole(tmp_path) is None


def test_a_checkpoint_takes_the_place_of_another_of_its_step(tmp_path):
    make(tmp_path, 4, "first")
    assert (make(tmp_path, 4, "second") / "model.bin").read_text() == "second"


def test_the_newest_stay(tmp_path):
    for step in (2, 10, 9):
        make(tmp_path, step)
    rotate(tmp_path, None)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-10", "checkpoint-9", "checkpoint-2"]
    rotate(tmp_path, 2)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-10", "checkpoint-9"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def rows(root):
    return make_rows(root, ["text", "image"])


@pytest.mark.parametrize("removal", ["rotation", "replacement"])
def test_a_kill_in_the_middle_of_a_removal_leaves_no_torn_checkpoint(tmp_path, monkeypatch, removal):
    for step in (1, 2):
        make(tmp_path, step)

    def killed(path):
        (path / "model.bin").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        rotate(tmp_path, 1) if removal == "rotation" else make(tmp_path, 1)
    assert [checkpoint_step(path) for path in checkpoints_in(tmp_path)] == [2]
    assert defect(tmp_path / "checkpoint-2") is None
    shutil.rmtree(tmp_path / STAGING)
    make(tmp_path, 3)
    rotate(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [STAGING, "checkpoint-3"]


def test_a_checkpoint_of_training_loads_alone(checkpoints, root, rows):
    options = {"trainer": {"max_steps": 3, "save_steps": 1, "batch_size": 1}}
    trainer = train("sft", checkpoints["qwen2_5_vl"], root, rows, "alone", **options)
    path, before = checkpoints_in(root / "alone" / "steps")
    assert (path.name, before.name) == ("checkpoint-3", "checkpoint-2")
    assert not (root / "alone" / "steps" / STAGING).exists()
    AutoProcessor.from_pretrained(path)
    loaded = dict(load_model(path).model.named_parameters())
    assert all((loaded[name] == value).all() for name, value in weights(trainer).items())


class FullDisk(TrainerCallback):
    """From a step on, no file may be longer than `limit` bytes."""

    def __init__(self, step, limit):
        self.step, self.limit = step, limit

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))


@pytest.mark.parametrize("limit", [2_000, 400_000])
def test_a_full_disk_ends_the_run_and_costs_no_checkpoint(checkpoints, root, rows, limit):
    options = {"trainer": {"max_steps": 4, "save_steps": 1, "batch_size": 1}}
    run = f"full-{limit}"
    try:
        with pytest.raises(CheckpointError, match="step 3 could not be written.*checkpoint-2 is untouched.*resume="):
            train("sft", checkpoints["qwen2_5_vl"], root, rows, run, callbacks=[FullDisk(2, limit)], **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    steps = root / run / "steps"
    assert newest_whole(steps).name == "checkpoint-2" and not (steps / STAGING).exists()
    assert train("sft", checkpoints["qwen2_5_vl"], root, rows, run, **options).state.global_step == 4


def test_a_folder_that_cannot_be_written_is_named(checkpoints, root, rows):
    class Blocked(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            (root / "blocked" / "steps").rmdir()
            (root / "blocked" / "steps").write_text("a file where the folder was")

    options = {"trainer": {"max_steps": 1, "save_steps": 1, "batch_size": 1}}
    with pytest.raises(CheckpointError, match="blocked/steps.*There is no earlier one"):
        train("sft", checkpoints["qwen2_5_vl"], root, rows, "blocked", callbacks=[Blocked()], **options)
