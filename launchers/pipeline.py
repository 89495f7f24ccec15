"""Stages as jobs of their own, each from the checkpoint of the one before: on Slurm, or one after another here.

    python -m launchers.pipeline stages=[sft,rl,eval] experiment=toy                   on this machine
    python -m launchers.pipeline ... hydra/launcher=slurm                              slurm_sft, slurm_rl, slurm_eval
    python -m launchers.pipeline ... rl:hydra.launcher.nodes=2 rl:trainer.beta=0.01    for one stage alone
    python -m launchers.pipeline ... seed=0,1,2                                        three pipelines side by side
    python -m launchers.pipeline ... rl:ktr=none,entropy                               several rl jobs from each sft job
    python -m launchers.pipeline resume=outputs/toy/pipeline-ID                        what did not complete, again

Settings are those of train.py; commas separate the values of a sweep, as with `train.py -m`. A stage that fails keeps
those that build on it from running, and the command ends with an error. The folder holds one sweep a stage (see
`python -m launchers.sweep`), and in the end the result over the jobs of the last one, as `ktr.reporting.sweep` has it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from ktr.config.cli import leave
from ktr.config.help import FLAGS
from ktr.config.schemas import TrainConfig
from ktr.reporting.sweep import write_sweep
from ktr.reporting.sweep_jobs import read_sweep, settings_of_overrides
from ktr.reporting.sweep_statistics import SweptRun
from ktr.reporting.sweep_tables import result_of
from launchers import job_events, slurm
from launchers.local_jobs import SweepInterrupted, run_jobs
from launchers.pipeline_plan import Pipeline, plan
from launchers.submission import check_settings, submit
from launchers.sweep_end import console, wait
from launchers.sweep_record import Sweep, SweepJob
from launchers.sweep_state import COMPLETED, JobState, states_of

RESUME = "resume="
NOT_RUN = "NOT RUN"


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or any(flag in given for flag in FLAGS):
        console(to_stderr=False).print(__doc__, markup=False, soft_wrap=True)
        sys.exit(0 if given else "error: name the stages, such as stages=[sft,rl,eval]")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        run(given)
    except Exception as error:  # The process boundary: reported, and the process ends.
        leave(error, TrainConfig)


def run(arguments: Sequence[str]) -> None:
    """Starts a pipeline or goes on with one, and ends the process with status 1 where not all of it completed."""
    if arguments[0].startswith(RESUME) and len(arguments) == 1:
        pipeline = Pipeline.read(arguments[0].removeprefix(RESUME))
        sweeps = {stage: pipeline.sweep(stage) for stage in pipeline.stages}
        _require(sweeps)
    else:
        pipeline, sweeps = plan(arguments)
        _require(sweeps)
        pipeline.save()
        for sweep in sweeps.values():
            sweep.save()
    told = console()
    jobs = ", ".join(f"{len(sweep.jobs)} {stage}" for stage, sweep in sweeps.items())
    told.print(f"{jobs} jobs in {pipeline.folder}", soft_wrap=True)
    if sweeps[pipeline.stages[0]].launcher == "slurm":
        try:
            waits = _submit(pipeline, sweeps)
        except slurm.SlurmError as error:
            rest = f"what was submitted before it goes on, and {_again(pipeline)} adds the rest"
            raise slurm.SlurmError(f"{error}; {rest}") from None
        told.print(f"submitted; wait, or go on later: {_again(pipeline)}", soft_wrap=True)
        if not waits:
            return
        for sweep in sweeps.values():
            wait(sweep)
    else:
        _run_here(pipeline, sweeps)
    _show_and_exit(pipeline, sweeps)


def _require(sweeps: dict[str, Sweep]) -> None:
    for sweep in sweeps.values():
        if sweep.launcher == "slurm":
            slurm.require()
            check_settings(sweep.settings)


def _run_here(pipeline: Pipeline, sweeps: dict[str, Sweep]) -> None:
    """One stage after another; a job whose input did not complete is left out."""
    completed: set[int | None] = {None}
    for stage, sweep in sweeps.items():
        found = states_of(sweep)
        ready = [one.job for one in found if one.state != COMPLETED and pipeline.input_of(stage, one.job) in completed]
        if ready:
            console().print(f"stage {stage}")
            try:
                run_jobs(sweep, ready, console())
            except SweepInterrupted:
                console().print(f"and with the later stages: {_again(pipeline)}", soft_wrap=True)
                raise
        completed = {one.job.number for one in states_of(sweep) if one.state == COMPLETED}


def _submit(pipeline: Pipeline, sweeps: dict[str, Sweep]) -> bool:
    """Submits what has not completed and does not wait or run, each job behind the one whose checkpoint it takes.

    Returns whether to wait for the jobs.
    """
    again: set[int | None] = set()
    awaited: dict[int | None, str] = {}  # Slurm's ids of the jobs before that have not completed.
    for stage, sweep in sweeps.items():
        found = states_of(sweep)
        groups: dict[str | None, list[SweepJob]] = {}
        for one in found:
            above = pipeline.input_of(stage, one.job)
            going = one.job.ids and not one.ended
            if one.state == COMPLETED or (going and above not in again):
                continue
            if going:
                slurm.cancel(one.job.ids[-1:])  # It waits for a job that will never complete.
            groups.setdefault(awaited.get(above), []).append(one.job)
        for dependency, jobs in groups.items():
            submit(_behind(sweep, dependency), jobs)
            sweep.save()  # The ids, without the dependency: it holds for this submission alone.
        again = {job.number for jobs in groups.values() for job in jobs}
        awaited = {one.job.number: one.job.ids[-1] for one in found if one.state != COMPLETED}
    return all(sweep.settings["wait"] for sweep in sweeps.values())


def _behind(sweep: Sweep, awaited: str | None) -> Sweep:
    """The sweep with a dependency, which an invalid one ends (see `executor_settings`)."""
    if awaited is None:
        return sweep
    return replace(sweep, settings=sweep.settings | {"dependency": f"afterok:{awaited}"})


def _show_and_exit(pipeline: Pipeline, sweeps: dict[str, Sweep]) -> None:
    """The table of all jobs, the result over those of the last stage, and an error where one did not complete."""
    found = {stage: states_of(sweep) for stage, sweep in sweeps.items()}
    console().print(_table(pipeline, sweeps, found))
    runs = [_with_settings_above(pipeline, run) for run in read_sweep(pipeline.folder / pipeline.stages[-1])]
    if any(run.finished for run in runs):
        page = write_sweep(result_of(pipeline.folder, runs, ["seed"]))
        console().print(f"result: {page}", soft_wrap=True)
    told = [line for stage, states in found.items() if (line := _failure(stage, states))]
    if told:
        sys.exit(f"error: {'; '.join(told)}; go on with: {_again(pipeline)}")


def _table(pipeline: Pipeline, sweeps: dict[str, Sweep], found: dict[str, list[JobState]]) -> Table:
    table = Table(title=str(pipeline.folder), title_justify="left", title_style="bold")
    for name in ("stage", "job", "from", "state", "overrides", "last metric", "error"):
        table.add_column(name, overflow="fold")
    for stage, states in found.items():
        axes = sweeps[stage].axes()
        for one in states:
            above = pipeline.input_of(stage, one.job)
            start = "" if above is None else f"{pipeline.before(stage)} {above}"
            own = axes[one.job.number] if len(states) > 1 else ""
            shown = re.sub(r"model\.path='[^']*'", "", own).strip()  # Told by the column before.
            state, error = (one.state, one.error) if _ran(one) else (NOT_RUN, "")
            table.add_row(stage, *map(Text, (str(one.job.number), start, state, shown, one.metric, error)))
    return table


def _failure(stage: str, states: Sequence[JobState]) -> str | None:
    """Which jobs of a stage failed and why the first one did; else how many did not run for want of their input."""
    failed = [one for one in states if one.state != COMPLETED and _ran(one)]
    if failed:
        numbers = ", ".join(str(one.job.number) for one in failed)
        return f"stage {stage} failed (job {numbers}): {failed[0].error}"
    left_out = sum(one.state != COMPLETED for one in states)
    return f"{left_out} of {len(states)} {stage} jobs did not run" if left_out else None


def _ran(found: JobState) -> bool:
    return found.state == COMPLETED or (found.folder / job_events.FOLDER).exists()


def _with_settings_above(pipeline: Pipeline, run: SweptRun) -> SweptRun:
    """A run of the last stage with the settings of the jobs it builds on, and without those that say where it lies."""
    settings = {key: value for key, value in run.settings.items() if key not in ("model.path", "stages")}
    stage, number = pipeline.stages[-1], run.number
    while (before := pipeline.before(stage)) is not None:
        number, stage = pipeline.parents[stage][number], before
        above = settings_of_overrides(pipeline.own[stage][number])
        settings |= {f"{stage}:{key}": value for key, value in above.items()}
    return replace(run, settings=settings)


def _again(pipeline: Pipeline) -> str:
    return f"python -m launchers.pipeline resume={pipeline.folder}"


if __name__ == "__main__":
    main()
