"""Composing configs: the schemas' registration with Hydra, and composition from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from ktr.config.run_folder_name import register_resolvers
from ktr.config.schema_prepare import PrepareConfig
from ktr.config.schemas import EvaluateConfig, PredictConfig, RunConfig, TrainConfig

CONF_DIR = Path(__file__).resolve().parents[2] / "conf"
HYDRA_VERSION = "1.3"
SCHEMAS: dict[str, type[RunConfig]] = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "predict": PredictConfig,
    "prepare": PrepareConfig,
}


def register(entry: str) -> None:
    """Make the schema of `entry` (as `train_schema`, ...) and the run folder's resolvers known to Hydra."""
    ConfigStore.instance().store(name=f"{entry}_schema", node=SCHEMAS[entry], provider="ktr")
    register_resolvers()


def compose(entry: str = "train", overrides: Sequence[str] = (), *, with_hydra: bool = False) -> DictConfig:
    """The config of an entry as the command line would compose it; for scripts, launchers and tests.

    Args:
        entry: `train`, `evaluate`, `predict` or `prepare`.
        overrides: in Hydra's grammar; `ktr.config.overrides.quote` makes any text a value.
        with_hydra: keep Hydra's own node.

    Example::

        config = validate(compose("train", ["experiment=toy", "seed=1"]))
    """
    register(entry)
    with initialize_config_dir(str(CONF_DIR), version_base=HYDRA_VERSION):
        return hydra_compose(entry, overrides=list(overrides), return_hydra_config=with_hydra)
