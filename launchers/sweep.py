"""Looks after a sweep that `train.py -m`, or another entry, has started: its state, waiting, new tries, its end.

python -m launchers.sweep status FOLDER       the table of its jobs, now
python -m launchers.sweep reattach FOLDER     wait until all have ended, then the table
python -m launchers.sweep resubmit FOLDER     start the jobs that did not complete again, in their run folders
python -m launchers.sweep cancel FOLDER       end those that wait or run
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

import yaml

from launchers import slurm
from launchers.local_jobs import run_jobs
from launchers.submission import check_settings
from launchers.sweep_end import console, show_and_exit, submit_and_wait, wait
from launchers.sweep_record import Sweep
from launchers.sweep_state import COMPLETED, failure, states_of, table_of

COMMANDS = ("status", "reattach", "resubmit", "cancel")
CHANGES = "settings of hydra.launcher that are different from now on, such as timeout_min=2880 (resubmit only)"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m launchers.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("folder", type=Path, help="the sweep's folder, outputs/<name>/sweep-<time>-<id>")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help=CHANGES)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        if given.changes and given.command != "resubmit":
            raise ValueError(f"{given.command} takes no settings, not {given.changes[0]}")
        sweep = Sweep.read(given.folder)
        if given.command == "resubmit":
            resubmit(sweep, given.changes)
        else:
            {"status": status, "reattach": reattach, "cancel": cancel}[given.command](sweep)
    except ValueError as error:
        sys.exit(f"error: {error}")


def status(sweep: Sweep) -> None:
    found = states_of(sweep)
    console(to_stderr=False).print(table_of(sweep, found))
    if all(one.ended for one in found) and (failed := failure(found)):
        sys.exit(f"error: {failed}")


def reattach(sweep: Sweep) -> None:
    if sweep.launcher == "slurm":
        wait(sweep)
    show_and_exit(sweep)


def resubmit(sweep: Sweep, changes: list[str]) -> None:
    found = states_of(sweep)
    again = [one.job for one in found if one.state != COMPLETED and (one.ended or sweep.launcher == "local")]
    if not again:
        running = sum(not one.ended for one in found)
        raise ValueError(f"no job of {sweep.folder} has failed" + (f"; {running} wait or run" if running else ""))
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or key not in sweep.settings:
            raise ValueError(f"{change}: settings are KEY=VALUE with a key of {', '.join(sorted(sweep.settings))}")
        sweep.settings[key] = _like(sweep.settings[key], yaml.safe_load(value), key)
    if sweep.launcher == "slurm":
        slurm.require()
        check_settings(sweep.settings)
        submit_and_wait(sweep, again)
    else:
        sweep.save()
        run_jobs(sweep, again, console())
    if sweep.settings.get("wait", True):
        show_and_exit(sweep)


def cancel(sweep: Sweep) -> None:
    if sweep.launcher != "slurm":
        raise ValueError("the jobs of this sweep run in the command that started it: end that one")
    going = [one.job.ids[-1] for one in states_of(sweep) if not one.ended and one.job.ids]
    slurm.cancel(going)
    console(to_stderr=False).print(f"cancelled {len(going)} jobs" if going else "no job waits or runs")


def _like(before: Any, now: Any, key: str) -> Any:
    if isinstance(before, float) and type(now) is int:
        return float(now)
    if before is not None and now is not None and type(before) is not type(now):
        raise ValueError(f"{key}: must be of the kind of {before!r}, not {now!r}")
    return now


if __name__ == "__main__":
    main()
