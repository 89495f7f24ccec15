"""Objects from `_target_` nodes, built only from an allow-list of places.

A dotted name is a way to run code, so it is tested twice: as written before anything is imported, and as the object it
leads to (`ktr.module.os.system` is written like ours and is not). Whole packages such as torch or transformers are too
wide (`torch.load` runs pickles), so of those only narrow parts are named.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from ktr.config.fields import ConfigError

ALLOWED_PREFIXES = ("ktr", "torch.optim", "torch.nn")

# Name as people write it -> where the object is defined.
ALLOWED_OBJECTS = {
    "transformers.BitsAndBytesConfig": "transformers.utils.quantization_config.BitsAndBytesConfig",
    "transformers.EarlyStoppingCallback": "transformers.trainer_callback.EarlyStoppingCallback",
    "trl.rewards.accuracy_reward": "trl.rewards.accuracy_rewards.accuracy_reward",
    "trl.rewards.think_format_reward": "trl.rewards.format_rewards.think_format_reward",
    "trl.rewards.get_soft_overlong_punishment": "trl.rewards.other_rewards.get_soft_overlong_punishment",
}


def build(node: Mapping[str, Any] | DictConfig, /, *, plugins: Sequence[str] = (), **extra: Any) -> Any:
    """The object that `node` describes: its `_target_` called with its other keys and `extra`, nested nodes first.

    Args:
        node: a mapping with `_target_`; values become plain python types before they reach the object.
        plugins: further allowed dotted prefixes.
        extra: arguments that are objects already; they win over keys of the same name.

    Raises:
        ConfigError: without a `_target_`, or for one that is not allowed or does not exist.

    Example::

        build({"_target_": "torch.optim.AdamW", "lr": 1e-4}, params=model.parameters())
    """
    node = plain(node)
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError("_target_", f"is missing: the node {node!r} does not say what to build")
    target = resolve(node["_target_"], plugins=plugins)
    return target(**(_arguments(node, plugins) | extra))


def plain(value: Any) -> Any:
    """`value` with OmegaConf containers turned into dicts and lists, interpolations resolved."""
    if isinstance(value, DictConfig | ListConfig):
        return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    return value


def check_name(name: Any, *, plugins: Sequence[str] = ()) -> str:
    """`name` if it is written like an allowed one; imports nothing.

    Raises:
        ConfigError: otherwise.
    """
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")) or "." not in name:
        raise ConfigError(
            "_target_", f"must be a dotted name such as ktr.rewards.components.AccuracyReward, not {name!r}"
        )
    private = [part for part in name.split(".") if part.startswith("_")]
    if private or not _allowed(name, plugins):
        places = ", ".join([f"{prefix}.*" for prefix in (*ALLOWED_PREFIXES, *plugins)])
        raise ConfigError(
            "_target_", f"{name!r} is not allowed: targets come from {places}; add your own package to plugins"
        )
    return name


def resolve(name: str, *, plugins: Sequence[str] = ()) -> Callable[..., Any]:
    """The class or function behind an allowed dotted name.

    Raises:
        ConfigError: if the name is not allowed, does not exist, is no class or function, or is defined in a place
            that is not allowed.
    """
    found = _locate(check_name(name, plugins=plugins))
    if isinstance(found, ModuleType) or not (inspect.isclass(found) or inspect.isroutine(found)):
        raise ConfigError("_target_", f"{name!r} is neither a class nor a function")
    module, qualname = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    home = f"{module}.{qualname}"
    if not isinstance(module, str) or not isinstance(qualname, str) or not _allowed(home, plugins):
        raise ConfigError("_target_", f"{name!r} is not allowed: it leads to {home}")
    return found


def _allowed(name: str, plugins: Sequence[str]) -> bool:
    if name in ALLOWED_OBJECTS or name in ALLOWED_OBJECTS.values():
        return True
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in (*ALLOWED_PREFIXES, *plugins))


def _locate(name: str) -> Any:
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:split])
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            continue
        for part in parts[split:]:
            if not hasattr(found, part):
                raise ConfigError(
                    "_target_", f"{name!r} does not exist: {module_name} has no {'.'.join(parts[split:])}"
                )
            found = getattr(found, part)
        return found
    raise ConfigError("_target_", f"{name!r} does not exist: no module {parts[0]}")


def _arguments(node: Mapping[str, Any], plugins: Sequence[str]) -> dict[str, Any]:
    odd = [key for key in node if not isinstance(key, str) or (key.startswith("_") and key != "_target_")]
    if odd:
        raise ConfigError("_target_", f"{node['_target_']!r} is given {odd[0]!r}, which is not an argument name")
    return {key: _built(value, plugins) for key, value in node.items() if key != "_target_"}


def _built(value: Any, plugins: Sequence[str]) -> Any:
    value = plain(value)
    if isinstance(value, Mapping):
        if "_target_" in value:
            return build(value, plugins=plugins)
        return {key: _built(entry, plugins) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_built(entry, plugins) for entry in value]
    return value
