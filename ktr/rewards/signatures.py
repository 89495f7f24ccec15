"""Reward functions by name, and whether the data has the columns they ask for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

RewardFunction = Callable[..., Sequence[float | None]]

# What the trainer hands to every reward beside the data's columns.
GIVEN = (
    "prompts",
    "completions",
    "completion_ids",
    "group",
    "trainer_state",
    "log_extra",
    "log_metric",
    "environments",
)


def check_columns(reward: RewardFunction, columns: Iterable[str], name: str = "") -> None:
    """Raise ValueError when `reward` declares a required argument that is neither a column nor always given."""
    known = {*columns, *GIVEN}
    missing = [
        parameter.name
        for parameter in inspect.signature(reward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.default is parameter.empty
        and parameter.name not in known
    ]
    if missing:
        label = name or getattr(reward, "__name__", type(reward).__name__)
        raise ValueError(
            f"the reward {label!r} needs {', '.join(missing)}, which the data lacks; known: {', '.join(sorted(known))}"
        )


def takes(reward: RewardFunction, column: str) -> bool:
    """Whether `reward` declares an argument of this name."""
    return column in inspect.signature(reward).parameters


def load_reward(reference: str) -> RewardFunction:
    """The callable at `package.module:function`, in TRL's form. Raises ValueError when there is none.

    Importing it runs its module: name only code you trust.
    """
    module_name, separator, attribute = reference.partition(":")
    if not separator or not module_name or not attribute:
        raise ValueError(f"a reward is named module:function, not {reference!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"the reward's module {module_name!r} cannot be imported: {error}") from error
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"{module_name!r} has no function {attribute!r}")
    return found


class FunctionReward:
    """A component that calls `module:function`, so that a config can name any reward in TRL's form."""

    def __init__(self, function: str) -> None:
        self._function = load_reward(function)
        self.__name__ = function
        self.__signature__ = inspect.signature(self._function)

    def __call__(self, *arguments: Any, **columns: Any) -> Sequence[float | None]:
        return self._function(*arguments, **columns)
