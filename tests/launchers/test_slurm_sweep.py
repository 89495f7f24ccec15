"""A sweep on a real Slurm to which everything happens at once: one job raises, one loses a rank, one is pre-empted
twice, one reaches its time limit; the table is right, and the jobs that were stopped equal those that were not."""

from __future__ import annotations

import threading

import pytest
from slurm_cluster import PACE, RunningSweep, assert_same_run, look_after, rows_of, slurm, until

from launchers.job_events import REQUEUED

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]

STEPS = 10
RAISES, KILLED, PREEMPTED, LIMITED, FIRST, SECOND = range(6)
ROLES = ["fail", "killed", "preempted", "limited", "first", "second"]


def preempt_twice(sweep, job):
    """Work of a higher partition takes the job's node from it, two times."""
    for times in (0, 1):
        until(lambda: sweep.attempts(job) == times + 1 and sweep.steps(job) >= 3 * times + 1, "steps")  # noqa: B023
        slurm("srun", "-p", "urgent", "-w", "n2", "--exclusive", "-n", "1", "true")
        until(lambda: sweep.attempts(job) == times + 2, "the next attempt")  # noqa: B023


def reach_limit(sweep, job):
    """The limit is moved to the end of the minute, so that the job is told within the half minute of Slurm's look."""
    until(lambda: sweep.steps(job) >= 2, "steps of the job whose limit is moved")
    hours, minutes, _ = slurm("squeue", "-h", "-j", sweep.id(job), "-o", "0:%M").strip().split(":")[-3:]
    slurm("scontrol", "update", f"JobId={sweep.id(job)}", f"TimeLimit={60 * int(hours) + int(minutes) + 2}")
    until(lambda: sweep.events(job, REQUEUED), "the requeue after the time limit")
    slurm("scontrol", "update", f"JobId={sweep.id(job)}", "TimeLimit=60")


@pytest.fixture(scope="module")
def ended(cluster, tmp_path_factory):
    """The sweep, its status and its output."""
    sweep = RunningSweep(
        tmp_path_factory.mktemp("sweep") / "out=1",
        "debug=fast", "stages=[rl]",  f"trainer.max_steps={STEPS}", "trainer.save_steps=3", "plugins=[slurm_pace]",
        "reward.max_error_share=0", f"+reward.components.pace={PACE.format(seconds=1.5)}",
        f"reward.components.pace.role={','.join(ROLES)}", "hydra/launcher=slurm_rl", "hydra.launcher.launch=srun",
        "hydra.launcher.processes_per_node=2", "hydra.launcher.cpus_per_task=1", "hydra.launcher.timeout_min=60",
        "hydra.launcher.signal_delay_s=120", "hydra.launcher.poll_s=1",
        "+hydra.launcher.additional_parameters={hold: true}",
    )  # fmt: skip
    try:
        for job in range(len(ROLES)):
            slurm("scontrol", "update", f"JobId={sweep.id(job)}", f"ReqNodeList=n{2 if job == PREEMPTED else 1}")
        slurm("scontrol", "release", sweep.id(0).partition("_")[0])
        fates = [threading.Thread(target=preempt_twice, args=(sweep, PREEMPTED))]
        fates += [threading.Thread(target=reach_limit, args=(sweep, LIMITED))]
        for fate in fates:
            fate.start()
        until(lambda: sweep.steps(KILLED) >= 1, "steps of the job that loses a rank")
        sweep.kill_rank(KILLED, 1)
        for fate in fates:
            fate.join()
        status, text = sweep.end()
        yield sweep, status, text
    finally:
        sweep.stop()


def test_the_table_shows_how_every_job_ended_and_the_status_that_some_failed(ended):
    sweep, status, text = ended
    rows = rows_of(text)
    assert [row[1] for row in rows] == ["FAILED", "FAILED", *["COMPLETED"] * 4], text
    assert [row[2] for row in rows] == [f"reward.components.pace.role={role}" for role in ROLES]
    assert [row[3] for row in rows] == [str(job) for job in range(6)]
    assert [row[4] for row in rows] == ["", "", "2", "1", "", ""]
    assert all(row[5].startswith("rl 10: reward") for row in rows[2:]) and rows[RAISES][5] == ""
    assert "this job was made to fail" in rows[RAISES][6]
    assert rows[KILLED][6].startswith("rank 1 was killed by SIGKILL")
    assert status == 1 and "error: 2 of 6 jobs did not complete (jobs 0, 1)" in text
    state, _, code = slurm("sacct", "-n", "-X", "-P", "-j", sweep.id(RAISES), "-o", "State,ExitCode").partition("|")
    assert state == "FAILED" and not code.startswith("0:")


def test_the_traceback_is_in_the_log_of_the_job(ended):
    sweep, *_ = ended
    logs = list((sweep.folder / ".submitit" / sweep.id(RAISES)).glob("*_log.err"))
    assert len(logs) == 2 and any("Traceback" in log.read_text() for log in logs)


def test_jobs_that_were_stopped_equal_those_that_were_not(ended):
    sweep, *_ = ended
    first = sweep.folder / str(FIRST)
    for job in (PREEMPTED, LIMITED, SECOND):
        assert_same_run(sweep.folder / str(job), first)
    reasons = [[event.text for event in sweep.events(job, REQUEUED)] for job in (PREEMPTED, LIMITED)]
    # Slurm requeues a pre-empted job itself where it needs longer than its time of grace.
    assert set(reasons[0]) == {"pre-empted"} and reasons[1] == ["timed out"]


def test_a_job_that_lost_a_rank_is_resubmitted_and_ends_as_the_others(ended):
    sweep, *_ = ended
    done = look_after(sweep.folder, "resubmit", "additional_parameters={}", "timeout_min=30")
    assert [row[1] for row in rows_of(done.stderr)] == ["FAILED", *["COMPLETED"] * 5], done.stderr
    assert done.returncode == 1 and len(sweep.sweep().jobs[KILLED].ids) == 2
    assert_same_run(sweep.folder / str(KILLED), sweep.folder / str(FIRST))
