"""The problem types the scorers know, and every spelling under which data sets name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

ALIASES: dict[str, tuple[str, ...]] = {
    "multiple choice": ("mc", "mcq", "multi choice", "multiple choice question", "multiple choices", "mutiple choice"),
    "yes/no": ("yes no", "yesno", "yes or no", "boolean", "bool", "binary", "binary classification", "judgement"),
    "numerical": ("number", "numeric", "numeric answer", "integer", "math numerical"),
    "regression": ("numeric regression", "regress"),
    "ocr": ("text recognition", "transcription"),
    "free-form": ("freeform", "short answer", "free form text"),
    "math": ("mathematics", "math expression"),
    "temporal grounding": ("temporal localization", "temporal video grounding", "tvg", "moment retrieval"),
    "spatial grounding": ("grounding", "visual grounding", "box", "bounding box"),
    "spatial-temporal grounding": ("spatio temporal grounding", "spatiotemporal grounding", "stvg"),
    "open-ended": ("open end", "openended", "open", "open ended question"),
    "operations": ("prediction operation", "predict operation"),
    "crr": (),
    "ssr": (),
    "rec": (),
}

DISPLAY_NAMES: dict[str, str] = {"ocr": "OCR", "crr": "CRR", "ssr": "SSR", "rec": "REC"}


def _key(name: str) -> str:
    return re.sub(r"[\s_\-/]+", " ", name).strip().casefold()


_CANONICAL: dict[str, str] = {}
for _name, _spellings in ALIASES.items():
    for _spelling in (_name, *_spellings):
        _CANONICAL[_key(_spelling)] = DISPLAY_NAMES.get(_name, _name)

PROBLEM_TYPES: tuple[str, ...] = tuple(DISPLAY_NAMES.get(name, name) for name in ALIASES)


def canonical_type(name: str) -> str:
    """The project's own name of a problem type, whatever its case, separators or alias.

    Raises ValueError with the known names for any other.
    """
    try:
        return _CANONICAL[_key(name)]
    except KeyError:
        raise ValueError(f"unknown problem_type {name!r}; known: {', '.join(PROBLEM_TYPES)}") from None


def is_problem_type(name: str) -> bool:
    """Whether `canonical_type` knows the name."""
    return _key(name) in _CANONICAL


def check_problem_types(names: Iterable[str] | Mapping[str, str]) -> None:
    """Raise one ValueError that lists every unknown problem type among `names`, for a check before a run starts.

    A mapping also says the id of a row of each type, which the message then names.
    """
    unknown = sorted({name for name in names if not is_problem_type(name)})
    if unknown:
        of_rows = names if isinstance(names, Mapping) else {}
        told = [f"{name!r} of row {of_rows[name]!r}" if name in of_rows else repr(name) for name in unknown]
        raise ValueError(f"unknown problem_type {', '.join(told)}; known: {', '.join(PROBLEM_TYPES)}")
