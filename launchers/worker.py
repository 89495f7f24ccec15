"""One process of a run that a launcher has started: `python -m launchers.worker ENTRY OVERRIDES`.

Runs the entry, and turns "told to end, and the state is on disk" (SIGUSR2 or SIGTERM) into status 0 and an event in
the run folder: torchrun and srun take any other status for a failure and kill the other ranks while they finish.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path
from types import FrameType

from launchers.job_events import INTERRUPTED, Event, record

SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
FOLDER_VARIABLE, ATTEMPT_VARIABLE = "KTR_JOB_FOLDER", "KTR_JOB_ATTEMPT"
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Has the kernel kill this process when the one that started it dies: nothing else would notice."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    end_with_parent()
    process = os.getpid()

    def handle(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # A forked child ends as it would have without this handler.
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        for own in SIGNALS:
            signal.signal(own, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    for signum in SIGNALS:
        signal.signal(signum, handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # Blocked by `launchers.run_processes` until somebody listens.
    entry, *_ = arguments
    sys.argv = arguments
    sys.path[0] = str(Path(entry).parent)
    try:
        runpy.run_path(entry, run_name="__main__")
    except SystemExit as ended:
        if ended.code not in [128 + signum for signum in SIGNALS]:
            raise
        told = Event(INTERRUPTED, os.environ[ATTEMPT_VARIABLE], int(os.environ.get("RANK", "0")))
        record(Path(os.environ[FOLDER_VARIABLE]), told)
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(0)  # Taking the interpreter down needs seconds, and Slurm may have few left for it.


if __name__ == "__main__":
    main(sys.argv[1:])
