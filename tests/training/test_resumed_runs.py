"""Runs of the main job that are ended in the middle and gone on with: the files of an unbroken run, but for times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from resume_cases import assert_same_files
from trainer_cases import read_lines

from ktr.config.compose import compose
from ktr.config.overrides import quote
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.training import pipeline
from ktr.training.callbacks import MetricsFile
from ktr.training.stopping import Interrupted

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SHORT = [
    "debug=fast", "sft.max_steps=4", "sft.save_steps=2", "trainer.max_steps=4", "trainer.save_steps=2",
    "eval.base=false", "eval.views=[full]", "eval.limit=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


def train(outputs, run, *overrides):
    config = validate(compose("train", [*SHORT, *overrides, f"output_dir={quote(str(outputs))}"]), TrainConfig)
    return pipeline.run(config, outputs / run)


@pytest.fixture(scope="module")
def whole(outputs):
    return train(outputs, "whole").parent


@pytest.fixture
def end_at(monkeypatch):
    """Sends this process a signal when a stage logs a step."""

    def arrange(stage, step, signum=signal.SIGTERM):
        plain = MetricsFile.on_log

        def on_log(self, args, state, control, logs=None, **kwargs):
            plain(self, args, state, control, logs=logs, **kwargs)
            if (self.stage, state.global_step) == (stage, step) and "loss" in logs:
                monkeypatch.setattr(MetricsFile, "on_log", plain)
                os.kill(os.getpid(), signum)

        monkeypatch.setattr(MetricsFile, "on_log", on_log)

    return arrange


def test_a_run_that_is_ended_twice_is_the_unbroken_run(outputs, whole, end_at, caplog):
    end_at("sft", 1)
    with pytest.raises(Interrupted) as ended:
        train(outputs, "ended")
    assert ended.value.code == 143
    assert "checkpoints/sft_steps/checkpoint-2" in caplog.text and f"resume={outputs / 'ended'}" in caplog.text
    state = json.loads((outputs / "ended" / "state.json").read_text())
    assert list(state["stages"]) == ["sft"] and not state["finished"]
    end_at("rl", 2, signal.SIGUSR2)
    with pytest.raises(Interrupted) as ended:
        train(outputs, "ended")
    assert ended.value.code == 140
    train(outputs, "ended", f"resume={quote(str(outputs / 'ended'))}")
    assert_same_files(outputs / "ended", whole)
    again = json.loads((outputs / "ended" / "state.json").read_text())
    assert again["finished"] and again["tracker_id"] == state["tracker_id"]


def test_a_stage_without_a_checkpoint_begins_again(outputs, whole, monkeypatch):
    def fail(self, *args, **kwargs):
        raise RuntimeError("gone")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="gone"):
        patched.setattr("ktr.training.grpo_trainer.KeyTokenGRPOTrainer._compute_loss", fail)
        train(outputs, "again")
    assert (outputs / "again" / "completions.jsonl").exists()
    started = (outputs / "again" / "checkpoints" / "sft" / "model.safetensors").stat().st_mtime
    train(outputs, "again")
    assert_same_files(outputs / "again", whole)
    assert (outputs / "again" / "checkpoints" / "sft" / "model.safetensors").stat().st_mtime == started


def test_what_cannot_be_gone_on_with_is_refused(outputs, whole, tmp_path):
    before = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    with pytest.raises(ValueError, match="is finished and is not opened again"):
        train(outputs, "whole", f"resume={quote(str(whole))}")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no run has begun there"):
        train(tmp_path, "none", f"resume={quote(str(tmp_path / 'none'))}")
    state = json.loads((whole / "state.json").read_text())
    for name, change, told in (
        ("ranks", {"world_size": 2, "finished": False}, "began with 2 processes"),
        ("seeds", {"finished": False}, "seed: 0 -> 1"),
    ):
        (outputs / name).mkdir()
        (outputs / name / "config.yaml").write_text((whole / "config.yaml").read_text())
        (outputs / name / "versions.json").write_text((whole / "versions.json").read_text())
        (outputs / name / "state.json").write_text(json.dumps(state | change))
        with pytest.raises(ValueError, match=told):
            train(outputs, name, "seed=1")
    after = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    assert {name for name in before if before[name] != after[name]} <= {"run.lock"}


def test_a_run_at_work_is_left_alone(outputs, whole, tmp_path):
    code = (
        "import fcntl,sys,time;f=open(sys.argv[1],'a');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(99)"
    )
    (outputs / "busy").mkdir()
    other = subprocess.Popen([sys.executable, "-c", code, str(outputs / "busy" / "run.lock")], stdout=subprocess.PIPE)
    try:
        other.stdout.readline()
        with pytest.raises(ValueError, match="another process is at work"):
            train(outputs, "busy")
    finally:
        other.kill()
        other.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_9_of_the_command_line_loses_no_file(outputs, whole):
    command = [sys.executable, str(ROOT / "train.py"), *SHORT, f"output_dir={quote(str(outputs))}", "name=killed"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    lines = len(read_lines(whole / "metrics.jsonl"))
    for steps in (1, lines // 3, lines // 2, lines):
        resume = [] if steps == 1 else ["resume=auto"]
        process = subprocess.Popen([*command, *resume], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while steps < lines and sum(len(read_lines(path)) for path in outputs.glob("killed/*/metrics.jsonl")) < steps:
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.02)
        if steps < lines:
            process.kill()
        _, errors = process.communicate()
        assert process.returncode == (-signal.SIGKILL if steps < lines else 0), errors.decode()[-3000:]
    runs = [path for path in (outputs / "killed").iterdir() if (path / "summary.json").exists()]
    assert len(runs) == 1
    assert_same_files(runs[0], whole)
