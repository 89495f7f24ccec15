"""The options of a multiple-choice row: their labels, their texts, and which of them the gold answer names."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from ktr.rewards.text import normalise, unwrap

_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")
_LABELLED = re.compile(
    r"\s*(?:\(\s*(?P<round>\w{1,4})\s*\)|[\[【]\s*(?P<square>\w{1,4})\s*[\]】]|(?P<bare>\w{1,4})\s*(?:[.):、]|\s-\s))"
    r"\s*[.:、]?\s*(?P<text>.*)",
    re.DOTALL,
)
_NAMED = re.compile(r"(?P<name>(?P<kind>[a-z]+) (?P<label>[a-z]|\d{1,2}))\s*[:.)]\s*(?P<text>\S.*)", re.DOTALL)
_ASSUMED_LABELS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Options:
    """`labels` in upper case; `texts` and `lines` (label and text) in the form texts are compared in.

    `names` are what options call themselves behind or instead of a label ("Caption A: ...", "Option 2: ..."), if they
    do; their texts are then without them.

    >>> read_options(("A. red", "B. blue")).labels
    ('A', 'B')
    """

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    lines: tuple[str, ...]
    names: tuple[str, ...] = ()

    @property
    def lettered(self) -> bool:
        return all(len(label) == 1 and label.isalpha() for label in self.labels)

    def index_of_label(self, label: str) -> int | None:
        label = label.upper()
        return self.labels.index(label) if label in self.labels else None

    def index_of_text(self, text: str) -> int | None:
        """The option whose whole line, bare text or name this is; None unless exactly one is."""
        wanted = comparable(text)
        forms = zip(self.lines, self.texts, self.names or self.texts, strict=True)
        matches = [i for i, own in enumerate(forms) if wanted and (wanted in own or wanted == self._named_line(i))]
        return matches[0] if len(matches) == 1 else None

    def _named_line(self, index: int) -> str | None:
        return f"{self.names[index]}: {self.texts[index]}" if self.names else None


def comparable(text: str) -> str:
    """The comparison form of an option or of an answer that should be one: no wrapping, no outer quotes."""
    return normalise(normalise(unwrap(text)).strip(" \"'“”‘’«»"))


@lru_cache(maxsize=4096)
def read_options(options: tuple[str, ...]) -> Options:
    """Take labels from the row (`A.`, `(A)`, `A)`, `A:`, `[A]`, `1.`, `II.`), or give letters to bare texts.

    Labels count only when every option carries one and together they can be a list's labels; a row without options is
    read with the labels A to J.
    """
    if not options:
        return Options(tuple(_ASSUMED_LABELS), ("",) * len(_ASSUMED_LABELS), ("",) * len(_ASSUMED_LABELS))
    lines = tuple(comparable(option) for option in options)
    labelled = [_split_label(option) for option in options]
    labels = tuple(label for label, _ in labelled)
    if _can_be_labels(labels):
        return Options(labels, *_without_names(tuple(text for _, text in labelled), lines))
    if len(options) > len(string.ascii_uppercase):
        raise ValueError(f"{len(options)} options without labels: write the labels into the options")
    return Options(tuple(string.ascii_uppercase[: len(options)]), *_without_names(lines, lines))


def _split_label(option: str) -> tuple[str, str]:
    text = unwrap(option)
    if len(text) == 1 and text.isalpha():
        return text.upper(), ""
    match = _LABELLED.fullmatch(text)
    if match is None:
        return "", ""
    label = (match["round"] or match["square"] or match["bare"]).upper()
    rest = match["text"]
    # "3.5 m" and "12:30" are bare texts, not a label and a text.
    if label.isdigit() and rest[:1].isdigit() and not text[: match.start("text")].endswith((" ", ")", "]")):
        return "", ""
    return label, comparable(rest)


def _without_names(
    texts: tuple[str, ...], lines: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Texts without the names all of them begin with, the lines, the names (none unless all are of one kind)."""
    named = [match for text in texts if (match := _NAMED.fullmatch(text))]
    labels = tuple(match["label"].upper() for match in named)
    if len(named) < len(texts) or len({match["kind"] for match in named}) != 1 or not _can_be_labels(labels):
        return texts, lines, ()
    return tuple(match["text"] for match in named), lines, tuple(match["name"] for match in named)


def _can_be_labels(labels: tuple[str, ...]) -> bool:
    count = len(labels)
    if not all(labels) or len(set(labels)) != count:
        return False
    if all(len(label) == 1 and label in string.ascii_uppercase for label in labels):
        return all(string.ascii_uppercase.index(label) < count + 2 for label in labels)
    if all(label.isdigit() for label in labels):
        return {int(label) for label in labels} in (set(range(1, count + 1)), set(range(count)))
    return set(labels) == set(_ROMAN[:count])


@lru_cache(maxsize=4096)
def gold_index(gold: str, options: Options) -> int:
    """The option that a gold answer names: by label in any wrapping, by whole line, or by bare text.

    Raises ValueError when it names none of them, or more than one.
    """
    text = unicodedata.normalize("NFKC", unwrap(gold)).strip()
    bare = re.sub(r"^[\s(\[{\"'<]+|[\s)\]}\"'>.,:;、。]+$", "", text)
    found = options.index_of_label(bare)
    if found is None:
        found = options.index_of_text(text)
    if found is None:
        label, _ = _split_label(text)
        found = options.index_of_label(label) if label else None
    if found is None:
        listed = "; ".join(f"{label}: {text}" for label, text in zip(options.labels, options.texts, strict=True))
        raise ValueError(f"the gold answer {gold!r} names none of the options ({listed}), or more than one of them")
    return found
