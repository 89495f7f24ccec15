"""What a job of a sweep asks Slurm for, and what is refused before it is asked."""

from __future__ import annotations

import pytest
import yaml
from omegaconf import OmegaConf
from submitit.slurm.slurm import _make_sbatch_string

from ktr.config.compose import CONF_DIR, compose
from launchers.submission import check_settings, executor_settings, job_overrides, processes
from launchers.sweep_record import Sweep, SweepJob


def settings_of(*overrides):
    config = compose("train", [*overrides], with_hydra=True)
    return OmegaConf.to_container(config.hydra.launcher, resolve=False)


def sbatch(**changes):
    settings = settings_of("hydra/launcher=slurm_rl") | changes
    wanted = executor_settings({key: value for key, value in settings.items() if key != "_target_"})
    names = {"timeout_min": "time", "tasks_per_node": "ntasks_per_node", "name": "job_name", "mem_gb": "mem"}
    own = {names.get(key, key.removeprefix("slurm_")): value for key, value in wanted.items()}
    return _make_sbatch_string("run", "logs", **own)


def test_one_task_a_node_starts_torchrun_and_one_a_process_is_sruns():
    assert "--ntasks-per-node=1" in sbatch(gpus_per_node=8) and "--gpus-per-node=8" in sbatch(gpus_per_node=8)
    assert "--ntasks-per-node=8" in sbatch(gpus_per_node=8, launch="srun")
    asked = [{"processes_per_node": own, "gpus_per_node": gpus} for own, gpus in ((2, 8), (None, 8), (None, None))]
    assert [processes(one) for one in asked] == [2, 8, 1]


def test_a_dead_rank_ends_the_job_and_srun_gets_the_cpus():
    text = sbatch(cpus_per_task=7, srun_args=["--mpi=none"], setup=["module load x"])
    command = next(line for line in text.splitlines() if line.startswith("srun "))
    for word in ("--kill-on-bad-exit=1", "--wait=0", "--open-mode=append", "--cpus-per-task=7", "--mpi=none"):
        assert f" {word} " in command
    assert "#SBATCH --requeue\n" in text and "#SBATCH --signal=USR2@300" in text
    assert "\nmodule load x\nexport PYTHONPATH=" in text


def test_settings_pass_without_a_plus():
    text = sbatch(dependency="afterok:7", nodelist="n1", exclusive=True, account="a", qos="q", partition="p")
    for word in (
        "dependency=afterok:7",
        "nodelist=n1",
        "exclusive",
        "account=a",
        "qos=q",
        "partition=p",
        "kill-on-invalid-dep=yes",
    ):
        assert f"#SBATCH --{word}\n" in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"launch": "mpirun"}, "hydra.launcher.launch: must be one of torchrun, srun"),
        ({"tasks_per_node": 8}, "set those"),
        ({"timeout_min": 45045}, "in minutes"),
        ({"timeout_min": 2, "signal_delay_s": 120}, "shorter than timeout_min"),
        ({"additional_parameters": {"time": "1:00:00"}}, "set timeout_min"),
    ],
)
def test_settings_that_would_be_misread_are_refused(changes, told):
    settings = settings_of("hydra/launcher=slurm_rl")
    check_settings(settings)
    with pytest.raises(ValueError, match=told):
        check_settings(settings | changes)


@pytest.mark.parametrize("name", ["slurm_sft", "slurm_rl", "slurm_eval", "slurm_debug"])
@pytest.mark.parametrize("entry", ["train", "evaluate", "prepare"])
def test_every_launcher_composes_with_every_entry(entry, name):
    needed = ["model.path=m"] if entry == "evaluate" else []
    config = compose(entry, [f"hydra/launcher={name}", *needed], with_hydra=True)
    assert config.hydra.launcher.timeout_min * 60 > config.hydra.launcher.signal_delay_s


def test_a_job_is_told_its_folder_whatever_characters_it_has(tmp_path):
    folder = tmp_path / "a=b, 'c'"
    sweep = Sweep(folder, "train.py", "slurm", {}, ["hydra.verbose=true"], [SweepJob(3, ["seed=1", "name='x=y'"])])
    *given, last = job_overrides(sweep, sweep.jobs[0])
    assert given == ["seed=1", "name='x=y'", "hydra.verbose=true"]
    config = compose("train", [last], with_hydra=True)
    assert config.hydra.run.dir == str(folder / "3")


@pytest.mark.parametrize("name", ["slurm_sft", "slurm_rl"])
def test_the_cluster_file_offers_no_setting_that_a_launcher_sets_itself(name):
    offered, own = (
        yaml.safe_load((CONF_DIR / path).read_text())
        for path in ("cluster/example.yaml", f"hydra/launcher/{name}.yaml")
    )
    assert not offered.keys() & own.keys()
