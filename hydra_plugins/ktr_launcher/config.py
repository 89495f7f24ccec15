"""Settings of the launchers: `hydra/launcher=slurm_rl` and its like, and `local`.

No postponed annotations here: Hydra looks at this module before it is importable, when dataclasses cannot read them.
"""

from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore
from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf


@dataclass
class SlurmJobs(SlurmQueueConf):
    """Every setting of hydra-submitit-launcher, those it lets pass only with a `+`, and this project's own.

    launch: `torchrun`: one task a node, which starts `processes_per_node` workers; `srun`: one task a process.
    processes_per_node: ranks on a node; by default one a GPU, and one where there is none.
    max_jobs: a sweep of more jobs is refused.
    wait: whether the command stays until all jobs have ended, and shows how; else it submits and exits.
    """

    _target_: str = "hydra_plugins.ktr_launcher.launchers.SlurmSweep"
    launch: str = "torchrun"
    processes_per_node: int | None = None
    max_jobs: int = 100
    wait: bool = True
    poll_s: int = 10
    srun_args: list[str] = field(default_factory=list)
    dependency: str | None = None
    exclusive: bool | None = None
    nodelist: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None


@dataclass
class LocalJobs:
    """Jobs on this machine, one after another, each in processes of its own (`processes_per_node` ranks)."""

    _target_: str = "hydra_plugins.ktr_launcher.launchers.LocalSweep"
    processes_per_node: int = 1
    max_jobs: int = 100


store = ConfigStore.instance()
store.store(group="hydra/launcher", name="slurm_jobs", node=SlurmJobs, provider="ktr")
store.store(group="hydra/launcher", name="local_jobs", node=LocalJobs, provider="ktr")
