"""What Slurm says of jobs, and what it is asked to do with them: squeue, sacct, scontrol and scancel."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence

FINAL = frozenset(
    ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "PREEMPTED")
)
# Slurm looks at time limits every 30 s and may send a job's signal up to a minute early.
LIMIT_SLACK_S = 90
COMMAND_SECONDS = 60
UNKNOWN_JOB = "Invalid job id"  # What squeue says of a single job that it has forgotten.
PREEMPTED, TIMED_OUT = "pre-empted", "timed out"


class SlurmError(ValueError):
    """Slurm is not there, or refused what it was asked."""


def require() -> None:
    """Raises SlurmError where no Slurm is installed."""
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise SlurmError(
            "hydra/launcher: there is no Slurm here (no sbatch and srun on the PATH); start from a login node, or "
            "leave hydra/launcher out to run the jobs here, one after another"
        )


def states(ids: Iterable[str]) -> dict[str, str]:
    """Slurm's word for the state of each job (`12` or `12_3`) that it still knows of.

    The queue knows of the jobs that wait, run or have just ended; accounting, where there is one, of all others.

    Raises:
        SlurmError: the queue does not answer, which says nothing of the jobs.
    """
    wanted = set(ids)
    if not wanted:
        return {}
    roots = ",".join(sorted({job.partition("_")[0] for job in wanted}))
    known: dict[str, str] = {}
    for command in (
        ["squeue", "-h", "-r", "-t", "all", "-j", roots, "-o", "%i|%T"],
        ["sacct", "-n", "-X", "-P", "-j", roots, "-o", "JobID,State"],
    ):
        if wanted <= known.keys() or shutil.which(command[0]) is None:
            continue
        done = _called(command)
        if command[0] == "squeue" and done.returncode != 0 and UNKNOWN_JOB not in done.stderr:
            raise SlurmError(f"squeue: {done.stderr.strip() or done.stdout.strip()}")
        for line in done.stdout.splitlines():
            job, _, state = line.partition("|")
            for name in _each(job):
                known.setdefault(name, state.split()[0] if state else "UNKNOWN")
    return {job: known[job] for job in sorted(wanted & known.keys())}


def requeue_reason(job: str, signal_delay_s: int) -> str | None:
    """Why a running job was told to end: `PREEMPTED`, `TIMED_OUT`, or None where it is not to be requeued.

    Slurm requeues or cancels a job that is no longer running by itself.
    """
    shown = _run("scontrol", "show", "job", "-o", job)
    fields = dict(word.split("=", 1) for word in shown.split() if "=" in word)
    if fields.get("JobState") != "RUNNING":
        return None
    if fields.get("PreemptTime", "None") != "None":
        return PREEMPTED
    end = fields.get("EndTime", "Unknown")
    if end == "Unknown":
        return PREEMPTED
    left = time.mktime(time.strptime(end, "%Y-%m-%dT%H:%M:%S")) - time.time()
    return TIMED_OUT if left <= signal_delay_s + LIMIT_SLACK_S else PREEMPTED


def requeue(job: str) -> None:
    _run("scontrol", "requeue", job)


def cancel(ids: Sequence[str]) -> None:
    if ids:
        _run("scancel", *ids)


def _each(job: str) -> list[str]:
    """`12_[0-2,5%4]`, as accounting names array jobs that wait, one by one."""
    match = re.fullmatch(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]", job)
    if match is None:
        return [job]
    names = []
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        names += [f"{match[1]}_{number}" for number in range(int(first), int(last or first) + 1)]
    return names


def _run(*command: str) -> str:
    done = _called(command)
    if done.returncode != 0:
        raise SlurmError(f"{' '.join(command[:2])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _called(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except FileNotFoundError:
        raise SlurmError(f"there is no {command[0]} here: this needs a machine of the cluster") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]}: no answer within {COMMAND_SECONDS} s") from None
