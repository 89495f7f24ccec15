"""From a composed config to the typed objects of a run, before torch is imported or a file is written."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, overload

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from ktr.config.convert import to_node
from ktr.config.fields import ConfigError
from ktr.config.instantiate import check_name, resolve
from ktr.config.run_folder_name import AUTO, is_finished
from ktr.config.schema_eval import EvalConfig
from ktr.config.schemas import EvaluateConfig, PredictConfig, RunConfig, TrainConfig

ConfigT = TypeVar("ConfigT", bound=RunConfig)
# The component that calls any `module:function`: what it names is held to the rules of `_target_`.
FUNCTION_REWARD = "ktr.rewards.signatures.FunctionReward"


@overload
def validate(config: DictConfig | Mapping[str, Any]) -> TrainConfig: ...
@overload
def validate(config: DictConfig | Mapping[str, Any], schema: type[ConfigT]) -> ConfigT: ...
def validate(config: DictConfig | Mapping[str, Any], schema: type[Any] = TrainConfig) -> Any:
    """The typed config of an entry.

    Args:
        config: as composed by Hydra, or plain nested values.
        schema: `TrainConfig`, `EvaluateConfig` or `PredictConfig`.

    Raises:
        ConfigError: naming the full key, for an unknown key, a value of the wrong type or out of range, settings that
            exclude each other, and targets that are not allowed or do not take the arguments given.
    """
    typed = to_node(schema, _plain(config))
    for plugin in typed.plugins:
        _check_plugin(plugin)
    _check_target(typed.rollout._target_, "rollout", typed.plugins)
    if isinstance(typed, TrainConfig):
        for name, node in typed.reward.nodes.items():
            _check_component(node, f"reward.components.{name}", typed.plugins)
    return typed


def check_files(config: RunConfig) -> None:
    """Refuses local files and folders that a config names and that are not there.

    Raises:
        ConfigError: naming the key and the path.
    """
    data = config.data
    wanted: dict[str, str | Path | None] = {
        "data.path": data.path,
        "data.sft_path": data.sft_path,
        "data.eval_path": data.eval_path,
        "data.captions_path": data.captions_path,
        "data.media_root": data.media_root,
        "model.deepspeed": config.model.deepspeed,
        "model.path": config.model.path if _looks_local(config.model.path) else None,
    }
    if isinstance(config, TrainConfig):
        if config.resume not in (None, AUTO):
            wanted["resume"] = config.resume
            if is_finished(Path(config.resume).expanduser()):
                raise ConfigError("resume", f"the run in {config.resume} is finished and is not opened again")
        wanted |= _evaluation_files(config.eval)
    if isinstance(config, EvaluateConfig):
        wanted |= {"resume": config.resume, "rescore": config.rescore}
        wanted |= {f"compare[{place}]": run for place, run in enumerate(config.compare)}
        if not config.rescore and not config.compare:
            wanted |= _evaluation_files(config.eval)
    if isinstance(config, PredictConfig):
        wanted |= {"video": config.video, "image": config.image}
    for place, source in enumerate(data.mix):
        wanted |= {f"data.mix[{place}].path": source.path, f"data.mix[{place}].media_root": source.media_root}
    for key, path in wanted.items():
        if path is not None and not str(path).startswith("hf://") and not Path(path).expanduser().exists():
            raise ConfigError(key, f"there is no {path}")


def _evaluation_files(settings: EvalConfig) -> dict[str, str | Path | None]:
    wanted: dict[str, str | Path | None] = {}
    for name, member in settings.members.items():
        key = f"eval.benchmarks.{name}" if settings.benchmarks else "eval"
        wanted |= {f"{key}.rows": member.rows_path, f"{key}.replies": member.replies}
        if member.engine != "replay" and member.media_root is not None:
            wanted[f"{key}.media_root"] = member.media_path
    return wanted


def _looks_local(path: str | None) -> bool:
    """Whether a model path is a folder rather than a hub name, which is `owner/name`."""
    return path is not None and (path.startswith(("/", ".", "~")) or path.count("/") != 1)


def _plain(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(config, DictConfig):
        return dict(config)
    # Hydra's own node is no part of a run's settings and resolves only within a job.
    config = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = error.full_key or ""
        raise ConfigError(key, f"is required: set it with {key}=VALUE") from error
    except OmegaConfBaseException as error:
        raise ConfigError(error.full_key or "", str(error).splitlines()[0]) from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _check_plugin(name: str) -> None:
    """Whether a plugin's module can be found; its parents are imported, it is not."""
    try:
        found = find_spec(name)
    except Exception as error:  # A parent package is the user's code, and is imported here.
        raise ConfigError("plugins", f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    if found is None:
        raise ConfigError("plugins", f"there is no module {name}: install it, or set PYTHONPATH to the folder it is in")


def _check_target(name: Any, key: str, plugins: Sequence[str]) -> None:
    try:
        check_name(name, plugins=plugins)
    except ConfigError as error:
        raise error.under(key) from None


def _check_component(node: Mapping[str, Any], key: str, plugins: Sequence[str]) -> None:
    for nested_key, target in _targets(node, key):
        _check_target(target, nested_key, plugins)
    if node["_target_"] == FUNCTION_REWARD:
        _check_target(str(node.get("function", "")).replace(":", "."), f"{key}.function", plugins)
    if not node["_target_"].startswith("ktr.rewards."):
        return  # Others may import torch: their arguments are checked when they are built.
    try:
        parameters = inspect.signature(resolve(node["_target_"], plugins=plugins)).parameters.values()
    except ConfigError as error:
        raise error.under(key) from None
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_POSITIONAL]
    for argument in node:
        if argument != "_target_" and argument not in names:
            takes = ", ".join(names) or "no arguments"
            raise ConfigError(f"{key}.{argument}", f"unknown argument; {node['_target_']} takes {takes}, and weight")
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty and parameter.name in names
        if required and parameter.name not in node:
            raise ConfigError(f"{key}.{parameter.name}", f"is required by {node['_target_']}")


def _targets(value: Any, key: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        if "_target_" in value:
            found.append((key, value["_target_"]))
        for name, entry in value.items():
            found.extend(_targets(entry, f"{key}.{name}"))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            found.extend(_targets(entry, f"{key}[{index}]"))
    return found
