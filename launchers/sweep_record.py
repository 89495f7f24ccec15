"""`sweep.json` in a sweep's folder: its jobs and how they were started, for whoever asks or goes on later."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ktr.reporting.files import write_atomic

NAME = "sweep.json"


@dataclass
class SweepJob:
    """`overrides` in Hydra's grammar; `ids` are Slurm's, the last one of the newest submission."""

    number: int
    overrides: list[str]
    ids: list[str] = field(default_factory=list)


@dataclass
class Sweep:
    """`folder` holds the run folders of the jobs, `settings` are those of the launcher (`hydra.launcher`).

    `shared` are overrides of Hydra itself, which every job gets.
    """

    folder: Path
    entry: str
    launcher: Literal["slurm", "local"]
    settings: dict[str, Any]
    shared: list[str] = field(default_factory=list)
    jobs: list[SweepJob] = field(default_factory=list)

    @classmethod
    def read(cls, folder: str | Path) -> Sweep:
        """Raises ValueError where no sweep was started in `folder`."""
        folder = Path(folder).expanduser().absolute()
        path = folder / NAME
        if not path.is_file():
            raise ValueError(f"{folder} is not a sweep's folder: it has no {NAME}")
        values = json.loads(path.read_text(encoding="utf-8"))
        jobs = [SweepJob(**job) for job in values.pop("jobs")]
        return cls(folder=folder, jobs=jobs, **values)

    def save(self) -> None:
        values = asdict(self)
        del values["folder"]
        write_atomic(self.folder / NAME, json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    def run_folder(self, job: SweepJob) -> Path:
        return self.folder / str(job.number)

    def axes(self) -> dict[int, str]:
        """The overrides of each job that not all jobs have, by its number; all of them where there is one job."""
        if len(self.jobs) < 2:
            return {job.number: " ".join(job.overrides) for job in self.jobs}
        common = set.intersection(*(set(job.overrides) for job in self.jobs))
        return {job.number: " ".join(one for one in job.overrides if one not in common) for job in self.jobs}
