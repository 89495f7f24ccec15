"""Building blocks of the schemas: fields that state their limits, and nodes that check them when built."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

MAX_SEED = 2**32 - 1  # The largest that numpy takes.


class ConfigError(ValueError):
    """A setting that cannot be used.

    Args:
        key: dotted key of the setting, such as ``ktr.top_k``.
        message: what is wrong and what would be right; `{group}.` stands for what the key lies in.
    """

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        self.message = message
        joint = "" if message.startswith("=") else ": "
        group, dot, _ = key.rpartition(".")
        text = message.replace("{group}.", group + dot)
        super().__init__(f"{key}{joint}{text}" if key else text)

    def under(self, parent: str) -> ConfigError:
        """The same error seen from the node above."""
        return ConfigError(f"{parent}.{self.key}" if parent and self.key else parent or self.key, self.message)


def number(
    default: Any, *, gt: float | None = None, ge: float | None = None, lt: float | None = None, le: float | None = None
) -> Any:
    """A numeric field with bounds; ``None`` passes where the annotation allows it."""
    bounds = {"above": gt, "at least": ge, "below": lt, "at most": le}
    return dataclasses.field(default=default, metadata={"bounds": {k: v for k, v in bounds.items() if v is not None}})


def choice(default: str | None, *options: str) -> Any:
    """A text field that takes one of ``options``."""
    return dataclasses.field(default=default, metadata={"options": options})


def free_text(default: str | None = None) -> Any:
    """A text or path field whose value on the command line may hold any character."""
    return dataclasses.field(default=default, metadata={"free_text": True})


def items(*default: str) -> Any:
    """A list of texts."""
    return dataclasses.field(default_factory=lambda: list(default))


@dataclass
class Node:
    """Base of all schemas. Building one checks every field's limits, then what the node says about pairs of fields.

    Raises:
        ConfigError: from the constructor; its key is relative to the node.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            options = field.metadata.get("options")
            if options and value not in options:
                raise ConfigError(field.name, f"must be one of {', '.join(options)}, not {value!r}")
            for words, bound in field.metadata.get("bounds", {}).items():
                if not _holds(words, value, bound):
                    raise ConfigError(field.name, f"must be {words} {_plain(bound)}, not {value!r}")
        self.check()

    def check(self) -> None:
        """Checks that need more than one field; schemas override it."""


def _plain(bound: float) -> str:
    """Whole numbers with all their digits, which `:g` would round to six."""
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _holds(words: str, value: float, bound: float) -> bool:
    if not math.isfinite(value):
        return False
    return {
        "above": value > bound,
        "at least": value >= bound,
        "below": value < bound,
        "at most": value <= bound,
    }[words]
