"""The settings of a run that goes on: those it began with, but for the few that leave its results as they are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ktr.config.fields import ConfigError
from ktr.config.run_folder_name import STATE
from ktr.config.schemas import RunConfig, TrainConfig
from ktr.config.validate import check_files, validate

logger = logging.getLogger(__name__)

CONFIG = "config.yaml"
# How long stages are, where and how often things are kept, and how media are read ahead.
FREE = (
    "resume", "name", "output_dir", "metric", "logger", "data.workers", "data.memory_gb", "data.cache_gb",
    "sft.max_steps", "sft.save_steps", "sft.save_total_limit", "trainer.max_steps", "trainer.save_steps",
    "trainer.save_total_limit",
)  # fmt: skip
_ABSENT = "absent"
ConfigT = TypeVar("ConfigT", bound=RunConfig)


def config_of_run(config: ConfigT, run_dir: Path, overrides: Sequence[str]) -> ConfigT:
    """The config with which a run goes on in `run_dir`; `config` itself where nothing has run there.

    `resume=RUN` needs no other setting: where the command line sets nothing but `FREE` keys, everything else is as the
    run began. Where it sets more, it has to be all that the run began with (an evaluation compares them itself).

    Raises:
        ConfigError: naming the settings that would change the results.
    """
    if not (run_dir / CONFIG).exists():
        return config
    given = [_key(override) for override in overrides]
    if all(_is_free(key) for key in given):
        saved = yaml.safe_load((run_dir / CONFIG).read_text(encoding="utf-8"))
        mine = asdict(config)
        for key in given:
            *above, name = key.split(".")
            _node(saved, above)[name] = _node(mine, above)[name]
        config = validate(saved, type(config))
        check_files(config)
        return config
    if isinstance(config, TrainConfig) and (run_dir / STATE).exists():
        refuse_changes(config, run_dir)
    return config


def refuse_changes(config: TrainConfig, run_dir: Path) -> None:
    """Compares a config with the one that a run began with.

    Raises:
        ConfigError: naming the settings that would change the results. Other changes are logged.
    """
    saved = yaml.safe_load((run_dir / CONFIG).read_text(encoding="utf-8"))
    before, now = flat(asdict(validate(saved, TrainConfig))), flat(asdict(config))
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key, _ABSENT) != now.get(key, _ABSENT)]
    told = {key: f"{key}: {before.get(key, _ABSENT)} -> {now.get(key, _ABSENT)}" for key in changed}
    refused = [told[key] for key in changed if not _is_free(key)]
    if refused:
        raise ConfigError(
            "resume",
            f"the run in {run_dir} began with other settings, which would change its results ({'; '.join(refused)}): "
            "give those it began with, or resume=RUN alone, or begin a new run",
        )
    for key in changed:
        if key not in ("resume", "name", "output_dir"):
            logger.warning("goes on with another setting than it began with: %s", told[key])


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Values of nested nodes by their dotted keys."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{key}.")
        else:
            found[key] = value
    return found


def _is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _node(values: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    for name in path:
        values = values[name]
    return values
