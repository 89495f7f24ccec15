"""What Slurm's commands say, read from programs of their names that say what the real ones do."""

from __future__ import annotations

import time

import pytest

from launchers import slurm


@pytest.fixture
def commands(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    def add(name, output, status=0):
        path = tmp_path / name
        lines = ["#!/bin/sh", f'echo "$0 $@" >> {tmp_path}/called', "/bin/cat <<'END'", output, "END", f"exit {status}"]
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)

    add.called = tmp_path / "called"
    return add


def test_the_queue_comes_first_and_accounting_knows_the_rest(commands):
    commands("squeue", "7_0|RUNNING\n7_1|PENDING")
    commands("sacct", "7_0|PENDING\n7_2|CANCELLED by 0\n7_[3-4,6%2]|PENDING\n9|TIMEOUT")
    found = slurm.states(["7_0", "7_1", "7_2", "7_4", "7_6", "9", "11"])
    assert found == {
        "7_0": "RUNNING", "7_1": "PENDING", "7_2": "CANCELLED", "7_4": "PENDING", "7_6": "PENDING", "9": "TIMEOUT",
    }  # fmt: skip
    assert "11,7,9" in commands.called.read_text()
    assert slurm.states([]) == {}


def test_without_accounting_the_queue_answers_alone(commands):
    commands("squeue", "7|FAILED")
    commands("sacct", "Slurm accounting storage is disabled", 1)
    assert slurm.states(["7", "8"]) == {"7": "FAILED"}


def test_a_queue_that_does_not_answer_says_nothing_of_the_jobs(commands, tmp_path):
    commands("squeue", "slurm_load_jobs error: Unable to contact slurm controller", 1)
    with pytest.raises(slurm.SlurmError, match="squeue: slurm_load_jobs error: Unable to contact"):
        slurm.states(["7"])
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n")
    assert slurm.states(["7"]) == {}


@pytest.mark.parametrize(
    ("state", "preempted", "left", "reason"),
    [
        ("RUNNING", "2026-01-01T00:00:00", 3600, slurm.PREEMPTED),
        ("RUNNING", "None", 100, slurm.TIMED_OUT),
        ("RUNNING", "None", 3600, slurm.PREEMPTED),
        ("CANCELLED", "None", 3600, None),
        ("COMPLETING", "2026-01-01T00:00:00", 10, None),
    ],
)
def test_a_job_is_requeued_only_while_it_runs_and_for_the_reason_it_was_told_to_end(
    commands, state, preempted, left, reason
):
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + left))
    commands("scontrol", f"JobId=7 JobName=a b=c JobState={state} PreemptTime={preempted} EndTime={end} Deadline=N/A")
    assert slurm.requeue_reason("7", signal_delay_s=60) == reason


def test_what_slurm_refuses_is_one_line(commands):
    commands("scontrol", "Invalid job id specified", 1)
    with pytest.raises(slurm.SlurmError, match="scontrol requeue: Invalid job id specified"):
        slurm.requeue("7")
    with pytest.raises(slurm.SlurmError, match="there is no scancel here"):
        slurm.cancel(["7"])
    with pytest.raises(slurm.SlurmError, match="there is no Slurm here"):
        slurm.require()
    slurm.cancel([])
