"""Schema of `prepare.py`: checking, caching, converting and publishing a data set."""

from __future__ import annotations

from dataclasses import dataclass, field

from ktr.config.fields import ConfigError, Node, choice, free_text, number
from ktr.config.schemas import RunConfig

JOBS = ("doctor", "cache", "convert", "publish")
ROW_FILES = ("jsonl", "json", "csv", "parquet", "video_r1")


@dataclass
class JobConfig(Node):
    """What to do, and where the result goes (`out`; null is the run folder).

    `workers` null is one a core. `seconds` is the hard limit of a file: a process that reads longer is killed.
    `memory_gb` bounds what each process may allocate. `every_frame` decodes whole videos, not only what the sampling
    picks. `factor` is the multiple that frame sizes are rounded to where no `model.path` says it. `features` also
    caches a frozen tower's output, under autocast with `bf16` as in `trainer.bf16`. `format` is that of converted rows.
    `repo`, `private` and `license` are those of the published data set; `copy_media` puts its files into it.

    Example::

        python prepare.py job=doctor data=video_r1 data.path=rows.json data.media_root=/videos job.out=checked
    """

    name: str = choice("doctor", *JOBS)
    out: str | None = free_text()
    workers: int | None = number(None, ge=1)
    seconds: float = number(60.0, gt=0)
    memory_gb: float | None = number(8.0, gt=0)
    every_frame: bool = False
    factor: int = number(28, ge=2)
    features: bool = False
    bf16: bool = False
    format: str = choice("jsonl", *ROW_FILES)
    repo: str | None = free_text()
    private: bool = True
    license: str | None = None
    copy_media: bool = False


@dataclass
class PrepareConfig(RunConfig):
    """`prepare.py`: one job on the rows of `data`. A model is named only to count prompts or to encode videos.

    Example::

        python prepare.py job=cache data=jsonl data.path=checked/verified.jsonl data.cache=/fast/cache
    """

    job: JobConfig = field(default_factory=JobConfig)

    def needs_model(self) -> bool:
        return False

    def check(self) -> None:
        super().check()
        if self.data.format == "toy":
            raise ConfigError("data", "=toy is rendered by the project itself; choose the format of your rows")
        if not self.data.path and not self.data.mix:
            raise ConfigError("data.path", f"is required with job={self.job.name}: a file of rows")
        if self.job.name == "cache":
            if not self.data.cache:
                raise ConfigError("data.cache", "is required with job=cache: the folder that runs will read")
            if self.job.features and not self.model.path:
                raise ConfigError("model.path", "is required with job.features=true: the checkpoint that encodes")
            if self.job.features and not self.model.freeze_vision:
                raise ConfigError("model.freeze_vision", "must be true with job.features=true: a trained tower changes")
        if self.job.repo is not None and self.job.repo.count("/") != 1:
            raise ConfigError("job.repo", f"must be owner/name, not {self.job.repo!r}")
