"""The processes that a launcher starts: who gets its signals, what ends them, and what they wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from launchers import job_events
from launchers.job_events import INTERRUPTED
from launchers.run_processes import TORCHRUN, run, worker_command, worker_variables

WAIT = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(30)\n"


def test_a_worker_ends_with_the_task_that_started_it(entry, tmp_path):
    script = entry(WAIT)
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from launchers.run_processes import run, worker_command, worker_variables\n"
        f"command = [sys.executable, *worker_command({str(script)!r}, [{str(tmp_path / 'started')!r}])]\n"
        f"run(command, os.environ | worker_variables(Path({str(tmp_path)!r}), 'a'), Path({str(tmp_path)!r}), 'a')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    while not (tmp_path / "started").exists():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    assert parent.communicate(timeout=10)[1] == b""  # The pipe closes when the worker, which also has it, has ended.


@pytest.mark.slow
def test_torchruns_agent_outlives_the_signals_and_its_workers_get_them(entry, tmp_path):
    """Slurm may send them to every process of a job at once."""
    script = entry("import os, sys; sys.argv[1] += os.environ['RANK']\n" + WAIT)
    command = [sys.executable, "-m", TORCHRUN, "--standalone", "--nproc-per-node=2"]
    command += worker_command(str(script), [str(tmp_path / "started")])

    def tell():
        while not all((tmp_path / f"started{rank}").exists() for rank in (0, 1)):
            time.sleep(0.05)
        agent = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", TORCHRUN], capture_output=True, text=True)
        for pid in (int(agent.stdout), os.getpid()):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGUSR2)

    threading.Thread(target=tell).start()
    status, _, told = run(command, os.environ | worker_variables(tmp_path, "a"), tmp_path, "a")
    assert status == 0 and told in (signal.SIGTERM, signal.SIGUSR2)
    assert sorted(event.rank for event in job_events.read(tmp_path) if event.event == INTERRUPTED) == [0, 1]


def test_of_a_progress_bar_only_what_it_shows_last_is_kept(tmp_path):
    code = "import sys; sys.stderr.write('10 %\\r20 %\\rdone\\n1 of 9\\r2 of 9')"
    assert run([sys.executable, "-c", code], os.environ, tmp_path, "7.0") == (0, ["done", "2 of 9"], None)
