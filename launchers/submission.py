"""Jobs of a sweep as one array of Slurm, by submitit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ktr.config.overrides import quote
from launchers import slurm
from launchers.sweep_record import Sweep, SweepJob
from launchers.task import JobTask

ROOT = Path(__file__).resolve().parents[1]
LAUNCH_MODES = ("torchrun", "srun")
OWN_SETTINGS = frozenset(("launch", "processes_per_node", "max_jobs", "wait", "poll_s"))
# What submitit calls alike for every kind of executor; its other settings are named after Slurm.
GENERAL = frozenset(
    ("timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name", "stderr_to_stdout")
)
LONGEST_MINUTES = 30 * 24 * 60


def check_settings(settings: dict[str, Any]) -> None:
    """Raises ValueError for launcher settings that would be misread or ignored."""
    if settings["launch"] not in LAUNCH_MODES:
        raise ValueError(f"hydra.launcher.launch: must be one of {', '.join(LAUNCH_MODES)}, not {settings['launch']!r}")
    if settings["tasks_per_node"] != 1:
        raise ValueError("hydra.launcher.tasks_per_node: follows from launch and processes_per_node; set those")
    if not 1 <= settings["timeout_min"] <= LONGEST_MINUTES:
        raise ValueError(
            f"hydra.launcher.timeout_min: is in minutes, 1 to {LONGEST_MINUTES}, not {settings['timeout_min']} "
            "(YAML reads an unquoted 12:30:45 as a number)"
        )
    if settings["signal_delay_s"] >= 60 * settings["timeout_min"]:
        raise ValueError("hydra.launcher.signal_delay_s: must be shorter than timeout_min")
    if "time" in settings["additional_parameters"]:
        raise ValueError("hydra.launcher.additional_parameters: set timeout_min instead of time")


def processes(settings: dict[str, Any]) -> int:
    """Ranks on each node."""
    return settings["processes_per_node"] or settings["gpus_per_node"] or 1


def executor_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The launcher's settings as submitit's executor takes them."""
    wanted = {key: value for key, value in settings.items() if key not in OWN_SETTINGS and value is not None}
    del wanted["submitit_folder"], wanted["max_num_timeout"]
    wanted["tasks_per_node"] = processes(settings) if settings["launch"] == "srun" else 1
    # A dependency that can never hold is an error, and not an endless wait.
    own = {"requeue": True} | ({"kill-on-invalid-dep": "yes"} if settings["dependency"] else {})
    wanted["additional_parameters"] = own | settings["additional_parameters"]
    # A rank that dies must not leave the others waiting; one that ends first must not end them. srun has not inherited
    # the CPUs of a task since Slurm 22.05, and would empty the log of a job that was requeued.
    srun = ["--kill-on-bad-exit=1", "--wait=0", "--open-mode=append"]
    if settings["cpus_per_task"] is not None:
        srun.append(f"--cpus-per-task={settings['cpus_per_task']}")
    wanted["srun_args"] = [*srun, *settings["srun_args"]]
    path = f"export PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}"
    wanted["setup"] = [*(settings["setup"] or ()), path]
    return {key if key in GENERAL else f"slurm_{key}": value for key, value in wanted.items()}


def submit(sweep: Sweep, jobs: Sequence[SweepJob]) -> None:
    """Submits `jobs` of the sweep as one array, and writes their new ids to its record.

    Raises:
        SlurmError: Slurm is not there, or does not take them; none is then submitted.
    """
    import submitit  # Imported late: a launcher is looked at by every command, and used by few.

    settings = sweep.settings
    executor = submitit.AutoExecutor(folder=settings["submitit_folder"], cluster="slurm")
    executor.update_parameters(**executor_settings(settings))
    tasks = [
        JobTask(
            sweep.entry,
            job_overrides(sweep, job),
            sweep.run_folder(job),
            settings["launch"],
            processes(settings),
            settings["max_num_timeout"],
            settings["signal_delay_s"],
        )
        for job in jobs
    ]
    sweep.save()
    try:
        submitted = executor.submit_array(tasks)
    except submitit.core.utils.FailedJobError as error:
        told = [line for line in str(error).splitlines() if "sbatch: error" in line] or str(error).splitlines()[-1:]
        raise slurm.SlurmError(f"sbatch refused the jobs: {told[0].partition('error: ')[2] or told[0]}") from None
    for job, one in zip(jobs, submitted, strict=True):
        job.ids.append(one.job_id)
    sweep.save()


def job_overrides(sweep: Sweep, job: SweepJob) -> tuple[str, ...]:
    return *job.overrides, *sweep.shared, f"hydra.run.dir={quote(str(sweep.run_folder(job)))}"
