"""What importers share: typed access to a record's fields, and the forms that answers and options come in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ktr.data.rows import MULTIPLE_CHOICE, RowError, option_labels

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_LETTER = re.compile(r"\(?([A-Z])\)?[.:]?")
_OPTION_LINE = re.compile(
    r"^(?:\(?(?P<letter>[A-Z])[:.)] ?(?=\S)|(?:Caption|Option|Sentence) (?P<named>[A-Z1-9]): )", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed access to a record's fields; every failure is a RowError that names the field."""

    data: Mapping[str, Any]
    default_id: str

    def text(self, *names: str) -> str:
        """The first of the fields that is present, as text."""
        found = self.optional(*names)
        if found is None:
            state = "is null" if names[0] in self.data else "is missing"
            raise RowError(f"the field {state}", field=names[0])
        return found

    def optional(self, *names: str) -> str | None:
        """The first of the fields that is there and not null, as text; None without one."""
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if isinstance(value, str):
                return value
            if isinstance(value, int | float) and not isinstance(value, bool):
                return str(value)
            raise RowError(f"text is wanted, not {type(value).__name__}", field=name)
        return None

    def number(self, name: str) -> float | None:
        """A finite number; None when the field is absent or empty."""
        value = self.optional(name)
        if value is None or not value.strip():
            return None
        try:
            number = float(value)
        except ValueError:
            raise RowError(f"{value!r} is not a number", field=name) from None
        if not math.isfinite(number):
            raise RowError(f"{value!r} is not a finite number", field=name)
        return number

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty when the field is absent."""
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise RowError(f"a list of texts is wanted, not {type(value).__name__}", field=name)
        return tuple(Fields({name: item}, "").text(name) for item in value)

    def identity(self, *names: str) -> str:
        """The row's id, or one made of the file's name and the row's number."""
        return self.optional(*names) or self.default_id


def problem_type_of(declared: str) -> str:
    """The problem type as the data name it, but for multiple choice, which has one spelling here."""
    spelled = re.sub(r"[-_\s]+", " ", declared.strip())
    return MULTIPLE_CHOICE if spelled.casefold() in ("multiple choice", "mcq") else declared.strip()


def untagged_answer(solution: str) -> str:
    """The text in the last answer tags. Without tags: the bare text, or what a think block at its start holds."""
    tagged = _ANSWER.findall(solution)
    if tagged:
        return tagged[-1].strip()
    if "<answer>" in solution or "</answer>" in solution:
        raise RowError("the answer tags do not pair", field="solution")
    thought = _THINK.match(solution.strip())
    return (thought.group(1) if thought else solution).strip()


def untagged_rationale(text: str | None) -> str | None:
    """The text in the think tags, or all of it without tags; None when there is nothing in it."""
    if text is None or not text.strip():
        return None
    found = _THINK.search(text)
    return (found.group(1) if found else text).strip() or None


def gold_label(answer: str, options: tuple[str, ...]) -> str:
    """The letter of the gold option, which may be given as letter, as the whole option, its text, or its name."""
    labels = option_labels(options) or []
    letter = _LETTER.fullmatch(answer)
    if letter and letter.group(1) in labels:
        return letter.group(1)
    texts = [re.sub(r"^\s*\(?[A-Z]\s*[.:)]\s*", "", option).strip() for option in options]
    same = [
        label
        for label, option, text in zip(labels, options, texts, strict=True)
        if answer in (option.strip(), text) or text.startswith(f"{answer}: ")
    ]
    return same[0] if len(same) == 1 else answer


def split_options(problem: str) -> tuple[str, tuple[str, ...]]:
    """Question and options of a text that ends in lines like `A: ...`, `B. ...` or `Option 1: ...`, and their rest."""
    starts = [match for match in _OPTION_LINE.finditer(problem) if match.start() > 0]
    for first in range(len(starts)):
        labels = [match["letter"] or match["named"] for match in starts[first:]]
        begin = labels[0] if labels[0] in "A1" else "A"
        if len(labels) > 1 and labels == [chr(ord(begin) + number) for number in range(len(labels))]:
            bounds = [match.start() for match in starts[first:]] + [len(problem)]
            options = tuple(problem[a:b].strip() for a, b in zip(bounds, bounds[1:], strict=False))
            return problem[: bounds[0]].strip(), options
    raise RowError("the text of a multiple choice question holds no options 'A: ...', 'B: ...'", field="problem")
