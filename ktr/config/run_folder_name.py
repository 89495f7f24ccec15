"""Where a run's folder lies: `<output_dir>/<name>/<time>-<random hex>`, or the folder that `resume` names.

`resume=auto` names the newest run of the name that is not finished, that no process is at work in and that did not fail
before its first checkpoint; without one, a new run begins.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import socket
import time
from pathlib import Path

from omegaconf import OmegaConf

logger = logging.getLogger(__name__)

AUTO = "auto"
STATE = "state.json"
LOCK = "run.lock"
FAILURE = "failure.json"


class RunBusyError(ValueError):
    """Another process is at work in the folder, which is not ours to write into."""


def run_id() -> str:
    """An id that no other run has, without `=`; the processes that torchrun starts on a machine share one."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()
        started = _start_time(parent)
        identity = f"{socket.gethostname()} {parent} {started} {os.environ.get('MASTER_PORT')}"
        return _format(started, hashlib.sha256(identity.encode()).hexdigest()[:6])
    return _format(time.time(), secrets.token_hex(3))


def run_dir(output_dir: str, name: str, resume: str | None) -> str:
    """The folder of a run, absolute, so that it stays the same when the working folder changes."""
    runs = Path(output_dir).expanduser() / name
    found = newest_unfinished(runs) if resume == AUTO else resume
    if resume == AUTO and found is None:
        logger.warning("no unfinished run lies in %s: a new one begins", runs)
    folder = Path(found) if found else runs / run_id()
    return str(folder.expanduser().absolute())


def newest_unfinished(runs: Path) -> Path | None:
    """The newest run in a folder that can be gone on with; ids begin with their time."""
    for folder in sorted((state.parent for state in runs.glob(f"*/{STATE}")), key=lambda run: run.name, reverse=True):
        if is_finished(folder) or is_at_work(folder):
            continue
        if (folder / FAILURE).exists() and not _has_checkpoint(folder):
            logger.warning("the run in %s failed before its first checkpoint: it is not gone on with", folder)
            continue
        return folder
    return None


def is_finished(folder: Path) -> bool:
    """Whether a run in this folder has done all of its stages."""
    state = folder / STATE
    return state.exists() and bool(json.loads(state.read_text(encoding="utf-8"))["finished"])


def _has_checkpoint(folder: Path) -> bool:
    """Whether a stage of the run is finished, or has a checkpoint to go on from."""
    stages = json.loads((folder / STATE).read_text(encoding="utf-8"))["stages"].values()
    return any(stage["checkpoint"] for stage in stages) or any((folder / "checkpoints").glob("*_steps/*"))


def is_at_work(folder: Path) -> bool:
    """Whether another process holds the run's lock. Asked with a shared lock, which others that ask do not notice."""
    if not (folder / LOCK).exists():
        return False
    with (folder / LOCK).open() as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def sweep_dir(output_dir: str, name: str) -> str:
    """The folder that holds the runs of one sweep."""
    return str((Path(output_dir) / name / f"sweep-{run_id()}").expanduser().absolute())


def register_resolvers() -> None:
    """Make `${ktr_run_dir:...}` and `${ktr_sweep_dir:...}` known to OmegaConf; a config resolves each once."""
    OmegaConf.register_new_resolver("ktr_run_dir", run_dir, replace=True, use_cache=True)
    OmegaConf.register_new_resolver("ktr_sweep_dir", sweep_dir, replace=True, use_cache=True)


def _format(seconds: float, suffix: str) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(seconds))}-{suffix}"


def _start_time(pid: int) -> float:
    """When a process began, in seconds since 1970 (its folder under /proc is made with it)."""
    return Path(f"/proc/{pid}").stat().st_ctime
