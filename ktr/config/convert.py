"""From plain nested values to typed nodes: keys known, values of their types, messages with the full key."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from ktr.config.fields import ConfigError, Node

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
NodeT = TypeVar("NodeT", bound=Node)


def to_node(schema: type[NodeT], values: Mapping[str, Any], key: str = "", root: type | None = None) -> NodeT:
    """Build `schema` and all nodes below it from plain values; what is left out takes its default.

    Args:
        schema: the node's class.
        values: plain python values (no OmegaConf containers).
        key: dotted key of the node, "" at the top.
        root: schema whose keys are suggested for unknown ones.

    Raises:
        ConfigError: with the full key, at the first unknown key, wrong type or failed check.
    """
    root = root or schema
    hints = field_types(schema)
    for name in values:
        if name not in hints:
            raise unknown_key(_join(key, name), root)
    built = {name: _convert(hints[name], value, _join(key, name), root) for name, value in values.items()}
    try:
        return schema(**built)
    except ConfigError as error:
        raise error.under(key) from None


def unknown_key(key: str, root: type) -> ConfigError:
    """The error for a key that `root` lacks, with the nearest keys it has."""
    known = schema_keys(root)
    parent, _, name = key.rpartition(".")
    siblings = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == parent}
    found = [siblings[near] for near in difflib.get_close_matches(name, siblings, n=2, cutoff=0.65)]
    found += [other for other in known if other.rpartition(".")[2] == name]
    found = found or difflib.get_close_matches(key, known, n=2, cutoff=0.6)
    if found:
        return ConfigError(key, f"unknown key; did you mean {' or '.join(found[:3])}?")
    return ConfigError(key, f"unknown key; {parent or 'the top level'} has {', '.join(siblings) or 'no keys'}")


def schema_keys(schema: type, prefix: str = "") -> tuple[str, ...]:
    """All dotted keys of a schema, nodes included."""
    keys: list[str] = []
    for name, hint in field_types(schema).items():
        keys.append(_join(prefix, name))
        if (node := _node_of(hint)) is not None:
            keys.extend(schema_keys(node, _join(prefix, name)))
    return tuple(keys)


def free_text_keys(schema: type, prefix: str = "") -> frozenset[str]:
    """The dotted keys whose command-line values may hold any character."""
    keys: set[str] = set()
    hints = field_types(schema)
    for field in dataclasses.fields(schema):
        key = _join(prefix, field.name)
        if field.metadata.get("free_text"):
            keys.add(key)
        if (node := _node_of(hints[field.name])) is not None:
            keys |= free_text_keys(node, key)
    return frozenset(keys)


def takes_list(key: str, schema: type) -> bool:
    """Whether the dotted `key` is a field of `schema`, or of a node below it, that holds a list."""
    name, _, below = key.partition(".")
    hint = field_types(schema).get(name)
    if below:
        node = _node_of(hint)
        return node is not None and takes_list(below, node)
    return any(typing.get_origin(part) is list for part in _parts(hint))


def field_types(schema: type) -> dict[str, Any]:
    """The resolved annotation of each field."""
    hints = typing.get_type_hints(schema)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema)}


def _convert(hint: Any, value: Any, key: str, root: type) -> Any:
    if hint is Any:
        return value
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    if _is_node(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(key, f"must be a node with keys of its own, not {value!r}")
        return to_node(hint, value, key, root)
    origin = typing.get_origin(hint)
    if origin is list:
        if not isinstance(value, list | tuple):
            raise ConfigError(key, f"must be a list, not {value!r}")
        (part,) = typing.get_args(hint)
        return [_convert(part, entry, f"{key}[{index}]", root) for index, entry in enumerate(value)]
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(key, f"must be a mapping, not {value!r}")
        return dict(value)
    return _scalar(hint, value, key)


def _scalar(hint: type, value: Any, key: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not hint:
        raise ConfigError(key, f"must be {WORDS[hint]}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(key, f"must be a finite number, not {value!r}")
    return value


def _node_of(hint: Any) -> type | None:
    """The node that an annotation is, or may be beside None."""
    return next((part for part in _parts(hint) if _is_node(part)), None)


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _is_node(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Node)


def _join(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else str(name)
