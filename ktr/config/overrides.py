"""Command-line overrides whose values may hold any character.

Hydra's grammar refuses many characters that paths and questions hold (`=`, `#`, brackets, quotes, most of Unicode). The
values of free-text keys are therefore quoted before Hydra parses them; what a person has quoted already stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

OVERRIDE = re.compile(r"(?P<prefix>\+{0,2})(?P<key>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(?P<value>.*)", re.DOTALL)
SWEEP_CALL = re.compile(r"(choice|glob|range|interval|tag|sort|shuffle)\(.*\)", re.DOTALL)
MULTIRUN_FLAGS = ("-m", "--multirun")
# Keys that hold paths wherever they stand, so that nodes of plugins are covered too.
PATH_NAMES = ("path", "media_root")


def quote_overrides(arguments: Sequence[str], free_text_keys: Iterable[str]) -> list[str]:
    """`arguments` with the values of free-text keys quoted for Hydra.

    `null` stays the null value. With `--multirun`, commas outside of quotes still separate the values of a sweep, and
    sweep functions such as `choice(a,b)` keep their meaning.

    Args:
        arguments: the command line without the program's name.
        free_text_keys: dotted keys, besides those whose last part is in `PATH_NAMES`.

    Example::

        >>> quote_overrides(["video=/d/epoch=3.mp4", "seed=1"], {"video"})
        ["video='/d/epoch=3.mp4'", 'seed=1']
    """
    keys = frozenset(free_text_keys)
    sweeping = any(argument in MULTIRUN_FLAGS for argument in arguments)
    return [_quote_argument(argument, keys, sweeping) for argument in arguments]


def quote(text: str) -> str:
    """`text` as a Hydra string literal that reads back as exactly `text`."""
    # OmegaConf reads `${` as a reference: one backslash before it keeps it text, those already there are doubled.
    text = re.sub(r"(\\*)\$\{", lambda match: match.group(1) * 2 + r"\${", text)
    # Within quotes a backslash is special only before a quote, the closing one included.
    text = re.sub(r"(\\*)'", lambda match: match.group(1) * 2 + r"\'", text)
    trailing = len(text) - len(text.rstrip("\\"))
    return f"'{text}{chr(92) * trailing}'"


def _quote_argument(argument: str, keys: frozenset[str], sweeping: bool) -> str:
    match = OVERRIDE.fullmatch(argument)
    if match is None or argument.startswith("-"):
        return argument
    key, value = match["key"], match["value"]
    if key not in keys and key.rpartition(".")[2] not in PATH_NAMES:
        return argument
    if sweeping and SWEEP_CALL.fullmatch(value):
        return argument
    parts = _split_commas(value) if sweeping else [value]
    return f"{match['prefix']}{key}={','.join(_quote_value(part) for part in parts)}"


def _quote_value(value: str) -> str:
    if value == "null" or _is_quoted(value):
        return value
    return quote(value)


def _is_quoted(value: str) -> bool:
    """Whether `value` is one complete Hydra string literal."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return False
    backslashes = 0
    for character in value[1:-1]:
        if character == value[0] and backslashes % 2 == 0:
            return False
        backslashes = backslashes + 1 if character == "\\" else 0
    return backslashes % 2 == 0


def _split_commas(value: str) -> list[str]:
    """`value` at its commas, but for those within a part that is one string literal."""
    parts: list[str] = []
    unfinished: str | None = None
    for piece in value.split(","):
        piece = piece if unfinished is None else f"{unfinished},{piece}"
        unfinished = piece if piece[:1] in ("'", '"') and not _is_quoted(piece) else None
        if unfinished is None:
            parts.append(piece)
    return parts if unfinished is None else [*parts, unfinished]
