"""A task of a job, with processes of its own and programs that stand for Slurm's: what ends it, and what follows."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from launchers import job_events
from launchers.job_events import FAILED, FINISHED, INTERRUPTED, REQUEUED, STARTED
from launchers.run_processes import TORCHRUN
from launchers.task import JobTask, Place

WAIT = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(30)\n"


@pytest.fixture
def requeues(tmp_path, monkeypatch):
    """A `scontrol` that shows a running job and lists the requeues it is asked for; its end lies `seconds` ahead."""
    calls = tmp_path / "calls"

    def set_up(seconds=86400, state="RUNNING"):
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + seconds))
        program = tmp_path / "bin" / "scontrol"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f'#!/bin/sh\n[ "$1" = requeue ] && echo "$2" >> {calls}\n'
            f"echo JobState={state} PreemptTime=None EndTime={end}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return lambda: calls.read_text().split() if calls.exists() else []

    return set_up


def here(rank=0, tasks=1, attempt="7_1.0"):
    return Place("8", attempt, 0, 1, rank, rank, tasks, ["n1", "n2"])


def task(entry, folder, *overrides, launch="torchrun", processes=1, **changes):
    settings = {"max_num_timeout": 1, "signal_delay_s": 60} | changes
    return JobTask(str(entry), overrides, folder, launch, processes, **settings)


def call(job, monkeypatch, at):
    monkeypatch.setattr("launchers.task.place", lambda: at)
    with pytest.raises(SystemExit) as ended:
        job()
    return ended.value.code


def kinds(folder):
    return [event.event for event in job_events.read(folder)]


def signal_when(path, signum):
    """Sends this process a signal once the worker has written its file."""

    def wait():
        while not path.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signum)

    threading.Thread(target=wait).start()


def test_a_task_that_ends_well_is_finished_and_does_not_run_again(entry, tmp_path, monkeypatch):
    job = task(entry("import sys; open(sys.argv[1], 'a').write('x')"), tmp_path / "run", str(tmp_path / "count"))
    monkeypatch.setattr("launchers.task.place", here)
    job()
    job()
    assert kinds(tmp_path / "run") == [STARTED, FINISHED] and (tmp_path / "count").read_text() == "x"


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("import sys; print('error: no rows', file=sys.stderr); sys.exit(1)", 1, "no rows"),
        ("{}['lost']", 1, "KeyError: 'lost'"),
        ("import os; os.kill(os.getpid(), 9)", 137, "rank 1 was killed by SIGKILL (kill -9, or out of memory)"),
        ("import os; os._exit(3)", 3, "rank 1 ended with status 3"),
    ],
)
def test_any_rank_that_fails_ends_its_job_with_a_status_and_says_why(entry, tmp_path, monkeypatch, code, status, told):
    assert call(task(entry(code), tmp_path / "run"), monkeypatch, here(rank=1, tasks=2)) == status
    _, failed = job_events.read(tmp_path / "run")
    assert (failed.event, failed.text, failed.rank) == (FAILED, told, 1)


@pytest.mark.parametrize("signum", [signal.SIGUSR2, signal.SIGTERM])
def test_a_task_that_is_told_to_end_is_requeued_after_its_processes_have_ended(
    entry, tmp_path, monkeypatch, requeues, signum
):
    asked = requeues()
    before = signal.getsignal(signum)
    signal_when(tmp_path / "started", signum)
    assert call(task(entry(WAIT), tmp_path / "run", str(tmp_path / "started")), monkeypatch, here()) == 0
    assert kinds(tmp_path / "run") == [STARTED, INTERRUPTED, REQUEUED] and asked() == ["8"]
    assert signal.getsignal(signum) == before


def test_other_ranks_leave_the_requeue_to_the_first(entry, tmp_path, monkeypatch, requeues):
    asked = requeues()
    signal_when(tmp_path / "started", signal.SIGUSR2)
    assert call(task(entry(WAIT), tmp_path / "run", str(tmp_path / "started")), monkeypatch, here(1, 2)) == 0
    assert kinds(tmp_path / "run") == [STARTED, INTERRUPTED] and asked() == []


def test_a_cancelled_job_is_not_requeued(entry, tmp_path, monkeypatch, requeues):
    asked = requeues(state="CANCELLED")
    signal_when(tmp_path / "started", signal.SIGTERM)
    assert call(task(entry(WAIT), tmp_path / "run", str(tmp_path / "started")), monkeypatch, here()) == 0
    assert kinds(tmp_path / "run") == [STARTED, INTERRUPTED] and asked() == []


def test_time_limits_are_counted_and_pre_emptions_are_not(entry, tmp_path, monkeypatch, requeues):
    asked, job = requeues(seconds=30), task(entry(WAIT), tmp_path / "run", str(tmp_path / "started"))
    codes = []
    for attempt in ("7_1.0", "7_1.1"):
        (tmp_path / "started").unlink(missing_ok=True)
        signal_when(tmp_path / "started", signal.SIGUSR2)
        codes.append(call(job, monkeypatch, here(attempt=attempt)))
    assert codes[0] == 0 and "the time limit was reached 2 times and hydra.launcher.max_num_timeout is 1" in codes[1]
    assert kinds(tmp_path / "run") == [STARTED, INTERRUPTED, REQUEUED, STARTED, INTERRUPTED, FAILED]
    assert asked() == ["8"]


def test_ranks_and_the_first_nodes_address_come_from_slurm(tmp_path):
    two_nodes = Place("8", "7_1.2", 1, 2, 5, 1, 8, ["n1", "n2"])
    command, variables = task("train.py", tmp_path, "seed=1", launch="srun", processes=4).command(two_nodes)
    assert command == [sys.executable, "-m", "launchers.worker", "train.py", "seed=1"]
    ranks = {name: variables[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")}
    assert ranks == {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "n1"}
    one_each = Place("8", "7_1.2", 1, 2, 1, 0, 2, ["n1", "n2"])
    command, variables = task("train.py", tmp_path, "seed=1", processes=4).command(one_each)
    assert variables["HYDRA_FULL_ERROR"] == "1"
    words = ["--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--master-addr=n1"]
    assert command[1:3] == ["-m", TORCHRUN] and [word for word in command if word in words] == words
    assert command[-4:] == ["-m", "launchers.worker", "train.py", "seed=1"] and "RANK" not in variables
    alone, variables = task("train.py", tmp_path, "seed=1").command(here())
    assert alone == [sys.executable, "-m", "launchers.worker", "train.py", "seed=1"] and "WORLD_SIZE" not in variables
    assert Place("8", "7_1.3", 1, 2, 5, 1, 8, []).port != two_nodes.port == one_each.port
