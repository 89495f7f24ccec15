"""From a command line to the jobs of each stage: shared and own settings, sweeps fanned out, checkpoints handed on.

A stage's job is a run of `train.py` with that stage alone. It starts from the checkpoint of one job of the stage
before it; a value list in a stage's own settings gives each of those several jobs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from hydra_plugins.ktr_launcher.launchers import OF_THE_SWEEP
from ktr.config.cli import prepare_arguments
from ktr.config.compose import compose
from ktr.config.fields import ConfigError
from ktr.config.overrides import quote
from ktr.config.run_folder_name import run_id
from ktr.config.schemas import STAGES, TrainConfig
from ktr.config.validate import check_files, validate
from ktr.reporting.files import write_atomic
from launchers.sweep_record import Sweep, SweepJob

NAME = "pipeline.json"
ENTRY = Path(__file__).resolve().parents[1] / "train.py"
LAUNCHER = "hydra/launcher="
SLURM = "slurm"  # Each stage's own launcher: slurm_sft, slurm_rl, slurm_eval.
OWN = re.compile(rf"({'|'.join(STAGES)}):(.+)", re.DOTALL)


@dataclass
class Pipeline:
    """`pipeline.json`: the stages in order, and for each of a stage's jobs the one before whose checkpoint it takes.

    Each stage's folder is that of a sweep. `own` are the overrides of a stage's jobs that other stages do not have.
    """

    folder: Path
    stages: list[str]
    parents: dict[str, list[int]] = field(default_factory=dict)
    own: dict[str, list[list[str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | Path) -> Pipeline:
        """Raises ValueError where no pipeline was started in `folder`."""
        folder = Path(folder).expanduser().absolute()
        path = folder / NAME
        if not path.is_file():
            raise ValueError(f"resume: {folder} is not a pipeline's folder: it has no {NAME}")
        return cls(folder=folder, **json.loads(path.read_text(encoding="utf-8")))

    def save(self) -> None:
        values = asdict(self)
        del values["folder"]
        write_atomic(self.folder / NAME, json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    def sweep(self, stage: str) -> Sweep:
        return Sweep.read(self.folder / stage)

    def before(self, stage: str) -> str | None:
        place = self.stages.index(stage)
        return self.stages[place - 1] if place else None

    def input_of(self, stage: str, job: SweepJob) -> int | None:
        """The job of the stage before whose checkpoint `job` starts from; None in the first stage."""
        return self.parents[stage][job.number] if self.before(stage) else None


def plan(arguments: Sequence[str]) -> tuple[Pipeline, dict[str, Sweep]]:
    """The pipeline of a command line and the sweep of each stage, checked, with nothing written yet.

    Raises:
        ConfigError: a setting of any stage is wrong, or there are more jobs than the launcher's `max_jobs`.
    """
    shared, own = _split(arguments)
    given = [one for one in shared if one.startswith("stages=")]
    first = validate(compose("train", [*_product(_of_jobs(shared))[0], *given]), TrainConfig)
    stages = first.stages
    unused = [stage for stage in own if own[stage] and stage not in stages]
    if unused:
        raise ConfigError(f"{unused[0]}:", f"is a prefix for a stage that is not among stages={stages}")
    for stage in stages[1:]:
        if any(one.partition("=")[0] == "model.path" for one in own[stage]):
            raise ConfigError(f"{stage}:model.path", "is the checkpoint of the stage before; leave it out")
    folder = (Path(first.output_dir) / first.name / f"pipeline-{run_id()}").expanduser().absolute()
    pipeline = Pipeline(folder, stages)
    sweeps: dict[str, Sweep] = {}
    above = [(0, jobs) for jobs in _product(_of_jobs(shared))]
    for stage in stages:
        sweep = _sweep(pipeline, stage, [*_of_hydra(shared), *_of_hydra(own[stage])])
        before = pipeline.before(stage)
        children = [(parent, common, mine) for parent, common in above for mine in _product(_of_jobs(own[stage]))]
        for number, (parent, common, mine) in enumerate(children):
            start = (
                []
                if before is None
                else [f"model.path={quote(str(folder / before / str(parent) / 'checkpoints' / before))}"]
            )
            sweep.jobs.append(SweepJob(number, [*common, *mine, *start, f"stages=[{stage}]"]))
        pipeline.parents[stage] = [parent for parent, _, _ in children] if before else []
        pipeline.own[stage] = [mine for _, _, mine in children]
        _check(sweep, stage, before)
        sweeps[stage] = sweep
        above = [(number, common) for number, (_, common, _) in enumerate(children)]
    kinds = {sweep.launcher for sweep in sweeps.values()}
    if len(kinds) > 1:
        raise ConfigError("hydra/launcher", "is local for some stages and Slurm's for others; take one for all")
    return pipeline, sweeps


def _split(arguments: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Overrides of all stages, and those behind `sft:`, `rl:` and `eval:`; commas separate values as in a sweep."""
    given = [(match[1], match[2]) if (match := OWN.fullmatch(one)) else (None, one) for one in arguments]
    _, *prepared = prepare_arguments(["-m", *(override for _, override in given)], TrainConfig)
    shared: list[str] = []
    own: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for (stage, _), override in zip(given, prepared, strict=True):
        key = override.partition("=")[0]
        if key == "resume":
            raise ConfigError("resume", "goes on with a pipeline and takes no other setting: resume=FOLDER")
        if stage is not None and key in ("stages", "name", "output_dir"):
            raise ConfigError(f"{stage}:{key}", "belongs to the whole pipeline; give it without a prefix")
        (shared if stage is None else own[stage]).append(override)
    return shared, own


def _sweep(pipeline: Pipeline, stage: str, hydra: Sequence[str]) -> Sweep:
    """The stage's sweep, as yet without jobs, with the settings of its launcher."""
    folder = pipeline.folder / stage
    chosen = [f"{LAUNCHER}{SLURM}_{stage}" if one == f"{LAUNCHER}{SLURM}" else one for one in hydra]
    config = compose("train", [*chosen, f"hydra.sweep.dir={quote(str(folder))}"], with_hydra=True)
    OmegaConf.set_readonly(config, False)
    settings: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
    target = settings.pop("_target_")
    kinds = {"SlurmSweep": "slurm", "LocalSweep": "local"}
    if target.rpartition(".")[2] not in kinds:
        raise ConfigError("hydra/launcher", f"must be local, {SLURM} or a slurm_* of conf/hydra/launcher, not {target}")
    shared = [one for one in hydra if not one.lstrip("+~").startswith(OF_THE_SWEEP)]
    return Sweep(folder, str(ENTRY), kinds[target.rpartition(".")[2]], settings, shared)  # type: ignore[arg-type]


def _check(sweep: Sweep, stage: str, before: str | None) -> None:
    count, most = len(sweep.jobs), sweep.settings["max_jobs"]
    if count > most:
        raise ConfigError("hydra.launcher.max_jobs", f"stage {stage} has {count} jobs and {most} is the most; raise it")
    for job in sweep.jobs:
        typed = validate(compose("train", job.overrides), TrainConfig)
        if before is not None:
            typed.model.path = None  # The checkpoint is not there yet.
        check_files(typed)


def _of_hydra(overrides: Sequence[str]) -> list[str]:
    return [one for one in overrides if one.lstrip("+~").startswith(("hydra.", "hydra/", "cluster@"))]


def _of_jobs(overrides: Sequence[str]) -> list[str]:
    """What is not about Hydra; each job gets its own `stages`."""
    hydra = _of_hydra(overrides)
    return [one for one in overrides if one not in hydra and not one.startswith("stages=")]


def _product(overrides: Sequence[str]) -> list[list[str]]:
    """Every combination of the values that are swept, as Hydra's own sweeper forms them."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    (combinations,) = BasicSweeper.split_arguments(parsed, None)
    return combinations
