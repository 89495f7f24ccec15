"""A real Slurm for the tests marked `slurm`, a sweep on it, and what can befall a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from trainer_cases import read_lines, without_times

from launchers import job_events
from launchers.sweep_record import NAME, Sweep
from launchers.sweep_state import JobState, states_of

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT.parent / "shared" / "slurm"
PACE = "{{_target_: slurm_pace.Pace, weight: 1.0, seconds: {seconds}, role: none}}"


@contextmanager
def running_slurm(folder: Path) -> Iterator[None]:
    """A Slurm of two emulated nodes: the one that runs already, or one of its own for the block."""
    if os.geteuid() != 0 or not (SCRIPTS / "slurm_up.sh").exists():
        pytest.skip("a test Slurm needs root and the scripts of ../shared/slurm")
    own = os.environ | {"SLURM_UP_DIR": str(folder)}
    if _answers():
        yield
        return
    subprocess.run(["bash", str(SCRIPTS / "slurm_up.sh")], env=own, check=True, timeout=180)
    try:
        yield
    finally:
        subprocess.run(["bash", str(SCRIPTS / "slurm_down.sh")], env=own, check=True, timeout=120)


def _answers() -> bool:
    try:
        done = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=20)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return "is UP" in done.stdout


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def until(condition: Callable[[], Any], what: str, seconds: float = 600) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.25)
    return found


def environment() -> dict[str, str]:
    """That of jobs whose rewards are `slurm_pace`'s."""
    return os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}


def look_after(folder: Path, command: str, *changes: str) -> subprocess.CompletedProcess[str]:
    """`python -m launchers.sweep` on a sweep's folder."""
    return subprocess.run(
        [sys.executable, "-m", "launchers.sweep", command, str(folder), *changes],
        capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=900,
    )  # fmt: skip


class RunningSweep:
    """`train.py -m ...` in a process of its own; its jobs are named by their number."""

    def __init__(self, outputs: Path, *overrides: str) -> None:
        command = [sys.executable, str(ROOT / "train.py"), "-m", *overrides, f"output_dir={outputs}"]
        self.log = outputs / "launcher.log"
        outputs.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, cwd=outputs)
        self.outputs = outputs
        try:
            self.folder = until(self._submitted, "the submission", 60)
        except AssertionError:
            raise AssertionError(self.log.read_text()) from None

    def _submitted(self) -> Path | None:
        assert self.process.poll() in (None, 0), self.log.read_text()
        for record in self.outputs.glob(f"*/*/{NAME}"):
            if all(job.ids for job in Sweep.read(record.parent).jobs):
                return record.parent
        return None

    def sweep(self) -> Sweep:
        return Sweep.read(self.folder)

    def id(self, job: int) -> str:
        return self.sweep().jobs[job].ids[-1]

    def state(self, job: int) -> JobState:
        return states_of(self.sweep())[job]

    def steps(self, job: int) -> int:
        """The last step of the job on record."""
        path = self.folder / str(job) / "metrics.jsonl"
        lines = read_lines(path) if path.exists() else []
        return max((line.get("step", 0) for line in lines), default=0)

    def events(self, job: int, kind: str) -> list[job_events.Event]:
        return [event for event in job_events.read(self.folder / str(job)) if event.event == kind]

    def attempts(self, job: int) -> int:
        """How often the job has started."""
        return len({event.attempt for event in self.events(job, job_events.STARTED)})

    def workers(self, job: int) -> dict[int, psutil.Process]:
        """The job's processes by their rank."""
        found = {}
        for process in psutil.process_iter():
            try:
                variables = process.environ()
                line = process.cmdline()
            except psutil.Error:
                continue
            own = variables.get("KTR_JOB_FOLDER") == str(self.folder / str(job))
            if own and "launchers.worker" in line and "torch.distributed.run" not in line:
                found[int(variables.get("RANK", 0))] = process
        return found

    def kill_rank(self, job: int, rank: int) -> None:
        self.workers(job)[rank].send_signal(signal.SIGKILL)

    def end(self, seconds: float = 900) -> tuple[int, str]:
        """Status and output of the command, once it has ended."""
        return self.process.wait(seconds), self.log.read_text()

    def stop(self) -> None:
        """Leaves nothing of the sweep on the cluster."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for job in self.sweep().jobs if (self.folder / NAME).exists() else ():
            subprocess.run(["scancel", *job.ids], capture_output=True, timeout=60)


def rows_of(text: str) -> list[list[str]]:
    """The cells of a table that rich has drawn, a list a row; cells that go over several lines are joined."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.split("│")[1:-1]]
            if cells[0]:
                rows.append(cells)
            else:
                rows[-1] = [f"{one} {more}".strip() for one, more in zip(rows[-1], cells, strict=True)]
    return rows


def assert_same_run(found: Path, expected: Path) -> None:
    """Two runs of the stage `rl`, one of them unbroken: metrics but for times, completions and weights."""
    metrics, others = (without_times(read_lines(run / "metrics.jsonl")) for run in (found, expected))
    assert metrics == others
    assert (found / "completions.jsonl").read_text() == (expected / "completions.jsonl").read_text()
    weights = [(run / "checkpoints" / "rl" / "model.safetensors").read_bytes() for run in (found, expected)]
    assert weights[0] == weights[1]
