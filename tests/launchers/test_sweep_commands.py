"""`python -m launchers.sweep` on sweeps of this machine, and what a job's folder alone says of it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest
from omegaconf import OmegaConf
from rich.console import Console
from slurm_cluster import ROOT, rows_of

from hydra_plugins.ktr_launcher.launchers import LocalSweep
from ktr.config.fields import ConfigError
from launchers import slurm, sweep
from launchers.job_events import FAILED, FINISHED, STARTED, Event, record
from launchers.sweep_end import ShowSweep
from launchers.sweep_record import Sweep, SweepJob
from launchers.sweep_state import LOST, failure, last_metric, states_of, wait_for

SETTINGS = {"processes_per_node": 1, "max_jobs": 9}


@pytest.fixture
def local(tmp_path):
    """A sweep of three jobs, whose entry fails while a file `broken` is there in the job's folder."""
    entry = tmp_path / "entry.py"
    entry.write_text(
        "import pathlib, sys\n"
        "folder = pathlib.Path(sys.argv[-1].partition('=')[2].strip(\"'\"))\n"
        "folder.joinpath('ran').open('a').write('x')\n"
        "sys.exit('error: it is broken' if (folder / 'broken').exists() else 0)\n"
    )
    made = Sweep(tmp_path / "sweep", str(entry), "local", dict(SETTINGS))
    made.jobs = [SweepJob(number, [f"seed={number}", "name=a"]) for number in range(3)]
    for job in made.jobs:
        made.run_folder(job).mkdir(parents=True)
    (made.run_folder(made.jobs[1]) / "broken").touch()
    made.save()
    return made


def call(*arguments):
    with pytest.raises(SystemExit) as ended:
        sweep.main([*map(str, arguments)])
    return ended.value.code


def test_what_did_not_complete_is_started_again_and_nothing_else(local, capfd):
    assert call("resubmit", local.folder) == (
        f"error: 1 of 3 jobs did not complete (job 1); python -m launchers.sweep resubmit {local.folder}"
    )
    rows = rows_of(capfd.readouterr().err)
    assert [row[1:4] for row in rows] == [
        ["COMPLETED", "seed=0", "0"], ["FAILED", "seed=1", "1"], ["COMPLETED", "seed=2", "2"],
    ]  # fmt: skip
    assert rows[1][6] == "it is broken" and [row[4] for row in rows] == ["", "", ""]
    (local.folder / "1" / "broken").unlink()
    sweep.main(["resubmit", str(local.folder)])
    assert [(local.folder / str(number) / "ran").read_text() for number in range(3)] == ["x", "xx", "x"]
    sweep.main(["status", str(local.folder)])
    assert {row[1] for row in rows_of(capfd.readouterr().out)} == {"COMPLETED"}
    assert call("resubmit", local.folder) == f"error: no job of {local.folder} has failed"


def test_commands_say_what_they_cannot_do(local, tmp_path):
    assert call("status", tmp_path) == f"error: {tmp_path} is not a sweep's folder: it has no sweep.json"
    assert "end that one" in call("cancel", local.folder)
    assert call("status", local.folder, "max_jobs=2") == "error: status takes no settings, not max_jobs=2"
    assert "settings are KEY=VALUE with a key of max_jobs, processes_per_node" in call("resubmit", local.folder, "x=1")
    assert "must be of the kind of 9" in call("resubmit", local.folder, "max_jobs=many")


def test_a_folder_that_holds_a_sweep_gets_no_second_one(local):
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(local.folder)}}})
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.dir: .* holds a sweep already"):
        LocalSweep(**SETTINGS).setup(hydra_context=None, task_function=None, config=config)


def test_a_sweep_that_is_refused_leaves_files_of_others_in_its_folder(tmp_path):
    (tmp_path / "mine").touch()
    launcher = LocalSweep(processes_per_node=1, max_jobs=1)
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}, "overrides": {"hydra": []}}})
    launcher.setup(hydra_context=None, task_function=None, config=config)
    with pytest.raises(ConfigError, match="the sweep has 2 jobs and 1 is the most"):
        launcher.launch([["seed=0"], ["seed=1"]], 0)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_settings_may_be_whole_numbers_where_they_were_fractions(local):
    local.settings["mem_gb"] = 10.5
    local.save()
    call("resubmit", local.folder, "mem_gb=64")
    assert Sweep.read(local.folder).settings["mem_gb"] == 64.0


def test_a_run_that_finishes_although_it_was_told_to_end_has_completed(local, tmp_path):
    (tmp_path / "entry.py").write_text(
        "import os, signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\nos.kill(os.getppid(), signal.SIGTERM)\n"
    )
    assert call("resubmit", local.folder) == 128 + signal.SIGTERM
    assert [one.state for one in states_of(local)] == ["COMPLETED", "PENDING", "PENDING"]


def test_a_sweep_whose_end_slurm_does_not_tell_ends_with_an_error(tmp_path, monkeypatch):
    """Hydra swallows what a callback raises, and would end with status 0."""
    Sweep(tmp_path, "train.py", "slurm", {}, jobs=[SweepJob(0, ["seed=0"], ["7"])]).save()
    monkeypatch.setattr("launchers.slurm.states", Mock(side_effect=slurm.SlurmError("squeue: down")))
    with pytest.raises(SystemExit, match=f"error: squeue: down; python -m launchers.sweep status {tmp_path}"):
        ShowSweep().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))


def test_the_wait_goes_on_while_slurm_does_not_answer(tmp_path, monkeypatch):
    made = Sweep(tmp_path, "train.py", "slurm", {"poll_s": 0}, jobs=[SweepJob(0, ["seed=0"], ["7"])])
    record(tmp_path / "0", Event(FINISHED, "7.0", 0))
    answers = iter([slurm.SlurmError("squeue: down")] * 3 + [{"7": "COMPLETED"}] * 2)

    def states(ids):
        list(ids)
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr("launchers.slurm.states", states)
    told = Console(file=io.StringIO(), width=200)
    assert [one.state for one in wait_for(made, told)] == ["COMPLETED"]
    assert [line[9:] for line in told.file.getvalue().splitlines()] == [
        "waiting for Slurm: squeue: down", "1 COMPLETED",
    ]  # fmt: skip


def test_a_sweep_of_this_machine_that_is_told_to_end_ends_its_job_and_starts_no_other(local, tmp_path):
    (tmp_path / "entry.py").write_text(
        "import pathlib, sys, time\n"
        "pathlib.Path(sys.argv[-1].partition('=')[2].strip(\"'\"), 'ran').touch()\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "launchers.sweep", "resubmit", str(local.folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    while not (local.folder / "0" / "ran").exists():
        assert process.poll() is None
        time.sleep(0.05)
    assert [one.state for one in states_of(Sweep.read(local.folder))] == ["RUNNING", "PENDING", "PENDING"]
    assert "another process runs the jobs" in subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stderr
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=20)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert f"ended by SIGTERM; go on with: python -m launchers.sweep resubmit {local.folder}" in text
    states = states_of(Sweep.read(local.folder))
    assert [one.state for one in states] == ["FAILED", "PENDING", "PENDING"] and states[0].error == "ended by SIGTERM"


def test_a_local_job_whose_command_is_gone_is_not_shown_as_running(local):
    record(local.folder / "0", Event(STARTED, "local.1", 0))
    assert [one.state for one in states_of(local)] == ["FAILED", "PENDING", "PENDING"]


def test_where_slurm_has_forgotten_a_job_its_folder_tells(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    made = Sweep(tmp_path / "sweep", "train.py", "slurm", {})
    made.jobs = [SweepJob(number, [f"seed={number}"], [f"7_{number}"]) for number in range(4)]
    for number, event in ((0, FINISHED), (1, FAILED), (2, STARTED)):
        record(made.folder / str(number), Event(STARTED, f"7_{number}.0", 0))
        record(made.folder / str(number), Event(event, f"7_{number}.0", 0, "lost" if event == FAILED else ""))
    made.save()
    assert [one.state for one in states_of(made)] == ["COMPLETED", "FAILED", "PENDING", "PENDING"]
    os.utime(made.folder / "sweep.json", (0, 0))
    found = states_of(made)
    assert [one.state for one in found] == ["COMPLETED", "FAILED", LOST, LOST] and found[1].error == "lost"
    assert failure(found) == "3 of 4 jobs did not complete (jobs 1, 2, 3)" and failure(found[:1]) is None


def test_status_0_without_a_finished_run_is_a_failure(tmp_path, monkeypatch):
    made = Sweep(tmp_path, "train.py", "slurm", {}, jobs=[SweepJob(0, ["seed=0"], ["7"])])
    made.save()
    monkeypatch.setattr("launchers.slurm.states", lambda ids: {job: "COMPLETED" for job in ids})
    assert [(one.state, one.error[:24]) for one in states_of(made)] == [("FAILED", "it ended without an erro")]
    record(tmp_path / "0", Event(FINISHED, "7.2", 0))
    (found,) = states_of(made)
    assert (found.state, found.requeued, found.error) == ("COMPLETED", 1, "")


def test_the_last_metric_is_that_of_the_last_line_that_has_one(tmp_path):
    assert last_metric(tmp_path) == ""
    lines = ['{"stage": "rl", "step": 3, "reward": 0.51234, "loss": 1.0}', '{"stage": "rl", "step": 3, "epoch": 1}']
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"stage": "rl", "st']))
    assert last_metric(tmp_path) == "rl 3: reward 0.5123"


@pytest.mark.slow
def test_a_local_job_may_have_several_ranks_and_ends_with_any_of_them(local, tmp_path, capfd):
    (tmp_path / "entry.py").write_text(
        "import os, pathlib, sys\n"
        "folder = pathlib.Path(sys.argv[-1].partition('=')[2].strip(\"'\"))\n"
        "folder.joinpath('ran' + os.environ['RANK']).touch()\n"
        "os.environ['RANK'] == '1' and (folder / 'broken').exists() and os.kill(os.getpid(), 9)\n"
    )
    local.settings["processes_per_node"] = 2
    local.save()
    assert "1 of 3 jobs did not complete (job 1)" in call("resubmit", local.folder)
    rows = rows_of(capfd.readouterr().err)
    assert [row[1] for row in rows] == ["COMPLETED", "FAILED", "COMPLETED"]
    assert rows[1][6].startswith("rank 1 was killed by SIGKILL")
    assert sorted(path.name for path in (local.folder / "0").glob("ran*")) == ["ran0", "ran1"]


@pytest.mark.slow
def test_a_command_line_of_any_characters_reaches_the_job(tmp_path):
    """`predict.py -m`: a sweep over questions that Hydra's grammar refuses."""
    command = [sys.executable, str(ROOT / "predict.py"), "-m", f"output_dir={tmp_path}/out #1=a"]
    done = subprocess.run(
        [*command, "model.path=/no=1", 'question=what = "2"?,why # not?', "seed=0"],
        capture_output=True, text=True, cwd=ROOT, timeout=100,
    )  # fmt: skip
    (folder,) = (tmp_path / "out #1=a").glob("*/sweep-*")
    overrides = [job.overrides for job in Sweep.read(folder).jobs]
    assert ["question='what = \"2\"?'" in overrides[0], "question='why # not?'" in overrides[1]] == [True, True]
    assert [row[6] for row in rows_of(done.stderr)] == ["model.path: there is no /no=1"] * 2 and done.returncode == 1
