"""The other launch mode on a real Slurm, torchrun on two nodes: signals reach the workers, a dead rank ends the job,
and a sweep is looked after when the command that started it has gone."""

from __future__ import annotations

import pytest
from slurm_cluster import PACE, RunningSweep, assert_same_run, look_after, rows_of, slurm, until

from launchers.job_events import REQUEUED

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]

FIRST, TOLD, KILLED = range(3)


@pytest.fixture(scope="module")
def sweep(cluster, tmp_path_factory):
    """Its command submits and ends."""
    sweep = RunningSweep(
        tmp_path_factory.mktemp("sweep"), "debug=fast", "stages=[rl]", "trainer.max_steps=10", "plugins=[slurm_pace]",
        f"+reward.components.pace={PACE.format(seconds=1)}", "reward.components.pace.role=first,told,killed",
        "hydra/launcher=slurm_rl", "hydra.launcher.nodes=2", "hydra.launcher.processes_per_node=1",
        "hydra.launcher.timeout_min=60", "hydra.launcher.poll_s=1", "hydra.launcher.wait=false",
    )  # fmt: skip
    yield sweep
    sweep.stop()


def test_submitting_ends_at_once_and_says_how_to_go_on(sweep):
    status, text = sweep.end(60)
    assert status == 0 and f"python -m launchers.sweep status|reattach|cancel {sweep.folder}" in text
    assert "3 jobs of 2 ranks (2 nodes with no GPU each, torchrun)" in text
    shown = look_after(sweep.folder, "status")
    assert shown.returncode == 0 and {row[1] for row in rows_of(shown.stdout)} <= {"PENDING", "RUNNING", "CONFIGURING"}


def test_signals_reach_the_workers_and_a_dead_rank_ends_its_job(sweep):
    until(lambda: sweep.steps(KILLED) >= 1, "steps of the job that loses a rank")
    sweep.kill_rank(KILLED, 1)
    for times, signum in enumerate(("USR2", "TERM")):
        until(lambda: sweep.attempts(TOLD) == times + 1 and sweep.steps(TOLD) >= 3 * times + 1, "steps")  # noqa: B023
        slurm("scancel", f"--signal={signum}", sweep.id(TOLD))
        until(lambda: len(sweep.events(TOLD, REQUEUED)) == times + 1, "the requeue")  # noqa: B023
    ended = look_after(sweep.folder, "reattach")
    rows = rows_of(ended.stderr)
    assert ended.returncode == 1 and [row[1] for row in rows] == ["COMPLETED", "COMPLETED", "FAILED"], ended.stderr
    assert [row[4] for row in rows] == ["", "2", ""]
    assert rows[KILLED][6].startswith("rank 1 was killed by SIGKILL")
    assert_same_run(sweep.folder / str(TOLD), sweep.folder / str(FIRST))


def test_a_job_that_is_cancelled_stays_ended(sweep):
    started = look_after(sweep.folder, "resubmit", "wait=false")
    assert started.returncode == 0, started.stderr
    until(lambda: sweep.attempts(KILLED) == 2, "the new try")
    assert "cancelled 1 jobs" in look_after(sweep.folder, "cancel").stdout
    ended = look_after(sweep.folder, "reattach")
    assert [row[1] for row in rows_of(ended.stderr)] == ["COMPLETED", "COMPLETED", "CANCELLED"], ended.stderr
    assert ended.returncode == 1
    assert slurm("squeue", "-h", "-j", sweep.id(KILLED), "-t", "pending,running", "-o", "%T").strip() == ""
