"""The jobs of a sweep's folder with their settings, states and figures, whoever ran them: this machine or Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ktr.config.run_folder_name import is_finished
from ktr.reporting.run_figures import run_figures
from ktr.reporting.sweep_statistics import FAILED, FINISHED, PENDING, RUNNING, SweptRun
from launchers import sweep_state
from launchers.sweep_record import Sweep
from launchers.sweep_state import JobState

QUOTES = "'\""


def read_sweep(folder: str | Path) -> list[SweptRun]:
    """Every job that the sweep was started with, those that have no run folder yet included.

    Raises:
        ValueError: no sweep was started in `folder`.
    """
    return [_swept_run(found) for found in sweep_state.states_of(Sweep.read(folder))]


def settings_of_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """`ktr.top_k=0.1` as key and value, without the grammar's `+` and quotes; `~key` removes a key."""
    settings = {}
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        quoted = len(value) > 1 and value[0] in QUOTES and value[-1] == value[0]
        settings[key] = value[1:-1] if quoted else value
    return settings


def _swept_run(found: JobState) -> SweptRun:
    state = _state(found)
    error = f"{found.state}: {found.error}" if state == FAILED and found.state != "FAILED" else found.error
    return SweptRun(
        found.job.number,
        settings_of_overrides(found.job.overrides),
        found.folder,
        state,
        "" if state == FINISHED else error,
        run_figures(found.folder),
    )


def _state(found: JobState) -> str:
    if found.state == sweep_state.COMPLETED or is_finished(found.folder):
        return FINISHED
    if found.ended:
        return FAILED
    return PENDING if found.state == sweep_state.PENDING else RUNNING
