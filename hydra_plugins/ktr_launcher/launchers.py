"""The launchers Hydra builds: `SlurmSweep` submits an array and waits for it, `LocalSweep` runs one job after another.

Both check every job's config before the first one starts, and run a job as the entry itself would be run: in processes
of its own, with the job's run folder given. How the jobs ended is shown when the sweep is over
(`launchers.sweep_end`), and a job that failed keeps no other from running.
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

# Overrides of Hydra that are about the sweep and not about its jobs.
OF_THE_SWEEP = ("hydra/launcher", "hydra/sweeper", "hydra.launcher", "hydra.sweeper", "hydra.sweep", "hydra.mode",
                "hydra.run")  # fmt: skip


class SweepLauncher(Launcher):
    """What both share. Imports of the package wait until a sweep is launched: every command looks at this module."""

    kind: str

    def __init__(self, **settings: Any) -> None:
        self.settings: dict[str, Any] = {
            key: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            for key, value in settings.items()
        }

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from ktr.config.fields import ConfigError
        from launchers.sweep_record import NAME

        self.context, self.config = hydra_context, config
        folder = Path(config.hydra.sweep.dir).absolute()
        if (folder / NAME).exists():
            raise ConfigError(
                "hydra.sweep.dir",
                f"{folder} holds a sweep already: python -m launchers.sweep resubmit goes on with it; name another one",
            )
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise ConfigError(
                "hydra/launcher", "start sweeps without torchrun; their jobs have processes_per_node ranks"
            )

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from ktr.config.cli import CLUSTER
        from launchers.sweep_record import Sweep, SweepJob

        folder = Path(self.config.hydra.sweep.dir).absolute()
        entry = str(Path(sys.argv[0]).absolute())
        own = [[one for one in overrides if not one.startswith(CLUSTER)] for overrides in job_overrides]
        jobs = [SweepJob(initial_job_idx + place, overrides) for place, overrides in enumerate(own)]
        sweep = Sweep(folder, entry, self.kind, self.settings, self._shared(), jobs)  # type: ignore[arg-type]
        try:
            self._check(sweep)
        except ValueError:
            if not initial_job_idx:  # Nothing has begun, and nothing is left behind: Hydra has written this already.
                (folder / "multirun.yaml").unlink(missing_ok=True)
                with suppress(OSError):  # It was there before, and holds other files.
                    folder.rmdir()
            raise
        if initial_job_idx:
            sweep.jobs = [*Sweep.read(folder).jobs, *jobs]
        sweep.save()
        with _environment_of_jobs():
            self.run(sweep, jobs)
        return self._returns(sweep, jobs)

    @abstractmethod
    def run(self, sweep: Any, jobs: Sequence[Any]) -> None:
        """Runs or submits the jobs of the sweep."""

    def _check(self, sweep: Any) -> None:
        """Refuses too many jobs, and a job whose config is wrong, before any is started."""
        from ktr.config.compose import SCHEMAS
        from ktr.config.fields import ConfigError
        from ktr.config.validate import validate

        count, most = len(sweep.jobs), self.settings["max_jobs"]
        if count > most:
            raise ConfigError("hydra.launcher.max_jobs", f"the sweep has {count} jobs and {most} is the most; raise it")
        schema, axes = SCHEMAS[self.config.hydra.job.name], sweep.axes()
        for job in sweep.jobs:
            try:
                typed = validate(self.context.config_loader.load_sweep_config(self.config, job.overrides), schema)
            except ConfigError as error:
                raise ConfigError(f"job {job.number} ({axes[job.number]}): {error.key}", error.message) from None
            if getattr(typed, "resume", None) is not None:
                raise ConfigError("resume", "is of one run; python -m launchers.sweep resubmit goes on with a sweep")

    def _shared(self) -> list[str]:
        given: list[str] = OmegaConf.to_container(self.config.hydra.overrides.hydra)  # type: ignore[assignment]
        return [one for one in given if not one.lstrip("+~").startswith(OF_THE_SWEEP)]

    def _returns(self, sweep: Any, jobs: Sequence[Any]) -> list[JobReturn]:
        """What the sweeper gets. A job that failed is an error to a sweeper that searches, and nothing to one that only
        lists: that one would stop."""
        from launchers.sweep_end import objective_of

        searching = not self.config.hydra.sweeper._target_.endswith("BasicSweeper")
        returns = []
        for job in jobs:
            ended = JobReturn(overrides=job.overrides, status=JobStatus.COMPLETED)
            if searching:
                ended.status, ended.return_value = objective_of(sweep, job)
            returns.append(ended)
        return returns


class LocalSweep(SweepLauncher):
    kind = "local"

    def run(self, sweep: Any, jobs: Sequence[Any]) -> None:
        from rich.console import Console

        from launchers.local_jobs import run_jobs

        console = Console(stderr=True)
        console.print(f"{len(jobs)} jobs, one after another, in {sweep.folder}", highlight=False, soft_wrap=True)
        run_jobs(sweep, jobs, console)


class SlurmSweep(SweepLauncher):
    kind = "slurm"

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from launchers import slurm
        from launchers.submission import check_settings

        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        slurm.require()
        check_settings(self.settings)

    def run(self, sweep: Any, jobs: Sequence[Any]) -> None:
        from launchers.sweep_end import submit_and_wait

        submit_and_wait(sweep, jobs)


@contextmanager
def _environment_of_jobs() -> Iterator[None]:
    """Jobs do not inherit how this process reports errors to itself."""
    from ktr.config.cli import TRACEBACK_WANTED

    kept = None if TRACEBACK_WANTED else os.environ.pop("HYDRA_FULL_ERROR", None)
    try:
        yield
    finally:
        if kept is not None:
            os.environ["HYDRA_FULL_ERROR"] = kept
