"""Where a run's folder lies: `<output_dir>/<name>/<time>-<random hex>`, or the folder that `resume` names."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from pathlib import Path

from omegaconf import OmegaConf


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
    folder = Path(resume) if resume else Path(output_dir) / name / run_id()
    return str(folder.expanduser().absolute())


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
