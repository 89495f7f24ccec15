"""Reading numbers the way a strict examiner would.

Accepted: digits with a decimal point, thousands in groups of three behind commas, fractions and mixed numbers (plain,
vulgar or LaTeX), powers of ten, percent, number words up to twenty, a unit or other words around. Refused, so that
nothing is read into it: a decimal comma, `1_00`, `0x1f`, `nan`, `inf`, clock times, dates, chains of dots, number words
beyond twenty, roots, named constants, `±` and denied numbers ("not 5").
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from ktr.rewards.text import unwrap_commands

_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]
NUMBER_WORDS: dict[str, int] = {word: value for value, word in enumerate(_WORDS)}
_PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourths": 4, "fifths": 5}
_MAGNITUDES = {"dozen": 12.0, "hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_TOO_LARGE = (
    r"thirty|forty|fifty|sixty|seventy|eighty|ninety|hundreds?|thousands?|millions?|billions?|trillions?|dozens?"
)

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_POWER = re.compile(r"(?<=\d)([⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_OTHER_SCRIPTS = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻₀-₉]+")
_VULGAR_AFTER_DIGIT = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_THIN_GROUPS = re.compile(r"(?<=\d)(?:[\u2009\u202f]|\\[,! ]|\{,\})(?=\d{3}(?!\d))")
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{([^{}]*)\}\s*\{([^{}]*)\}|(\d)\s*(\d))")
_TIMES_TEN = re.compile(r"(?:(?<=\d)|(?<=\d[\s]))(?:\\times|\\cdot|[×x*·])\s*10\s*\^\s*[{(]?\s*([+-]?\d+)\s*[})]?")
_TEN_POWER = re.compile(r"(?<![\d.,\w])10\s*\^\s*[{(]?\s*([+-]?\d+)\s*[})]?")
_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree")
_UNIT_EXPONENT = re.compile(r"(?<=[A-Za-z)])\s*\^\s*\{?\s*-?\d+\s*\}?")
_HARMLESS_COMMAND = re.compile(
    r"\\(?:left|right|displaystyle|quad|qquad|approx|sim|simeq|times|cdot|dots|ldots|thinspace|[,;:! ()\[\]])"
)
_WORD_NUMBER = re.compile(
    rf"(?<![\w.])(?:({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?:[\s-]+({'|'.join(_PARTS)}))?)(?!\w)"
    rf"|(?<!\w)({_TOO_LARGE})(?!\w)",
    re.IGNORECASE,
)
_SIGN_WORD = re.compile(r"(?<!\w)(?:minus|negative)\s+(?=[\d.])", re.IGNORECASE)
_SIGN_GAP = re.compile(r"(^|[=(])(\s*)-\s+(?=[\d.])")
_SIGN_CURRENCY = re.compile(r"-\s*[$€£¥₹]\s*(?=[\d.])")
_NO_NUMBER = re.compile(
    r"\\|\d\s*\^|[√∛∜π≠∞]|(?:^|[^\d\s])\s*±|(?<![A-Za-z])(?:sqrt|pi)(?![A-Za-z])|\b0x[\da-f]|(?:\bnot|n['’]t)\s+[-+]?\.?\d",
    re.IGNORECASE,
)
_SPACED_SLASH = re.compile(r"(?<=\d)\s*/\s*(?=\d)")
_CHUNK = re.compile(
    r"(?<![A-Za-z_\d.])(?P<sign>(?<![\w)%])[+-])?(?P<body>\.?\d[\d.,_:/']*(?:[eE][+-]?\d+)?)"
    r"(?P<percent>\s*(?:%|(?:percent|per\s?cent|pct)(?![A-Za-z])))?"
    rf"(?:\s+(?P<magnitude>{'|'.join(_MAGNITUDES)})(?![A-Za-z]))?",
    re.IGNORECASE,
)
_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_PLAIN = re.compile(rf"({_DECIMAL})(e[+-]?\d+)?(?:/({_DECIMAL}))?", re.IGNORECASE)
_GAP_IN_MIXED = re.compile(r"\s+(?:and\s+)?", re.IGNORECASE)


class Number(NamedTuple):
    value: float
    percent: bool = False


class Numbers(NamedTuple):
    """The numbers in a text; `refused` says that something number-like stood there which is none."""

    found: tuple[Number, ...]
    refused: bool

    def single(self) -> Number | None:
        """The one number of the text: None when there is none, more than one value, or anything refused."""
        return self.found[0] if not self.refused and len(set(self.found)) == 1 else None


class _Part(NamedTuple):
    number: Number
    start: int
    end: int
    whole: bool  # digits only: can open a mixed number
    proper: bool  # an unsigned fraction below one: can close a mixed number


@lru_cache(maxsize=16384)
def read_numbers(text: str) -> Numbers:
    """All numbers that stand in `text`, in order."""
    text = _plain(text)
    refused = _NO_NUMBER.search(text) is not None
    parts: list[_Part] = []
    for chunk in _CHUNK.finditer(text):
        part = _read_chunk(chunk)
        if part is None:
            refused = True
        elif parts and part.proper and parts[-1].whole and _GAP_IN_MIXED.fullmatch(text[parts[-1].end : part.start]):
            whole = parts.pop()
            sign = -1.0 if math.copysign(1.0, whole.number.value) < 0 else 1.0
            value = whole.number.value + sign * part.number.value
            parts.append(_Part(Number(value, part.number.percent), whole.start, part.end, False, False))
        else:
            parts.append(part)
    return Numbers(tuple(part.number for part in parts), refused or "\x00" in text)


def _plain(text: str) -> str:
    """The text with every accepted notation rewritten to signs, digits, points, commas, slashes and `%`."""
    text = _POWER.sub(lambda match: "^" + match[1].translate(_SUPERSCRIPTS), text)
    text = _OTHER_SCRIPTS.sub("", text)
    text = _VULGAR_AFTER_DIGIT.sub(" ", text)
    text = _THIN_GROUPS.sub(",", text)
    text = unicodedata.normalize("NFKC", text)
    text = re.sub("[⁄∕]", "/", re.sub("[−‐‑–]", "-", text))
    text = re.sub(r"^\s*—\s*(?=[\d.])", "-", text).replace("—", " ").replace("―", " ")
    text = text.replace("\\%", "%").replace("\\$", "$").replace("**", " ").replace("`", " ")
    if "\\" in text or "^" in text:
        text = _plain_latex(text)
    text = _SIGN_CURRENCY.sub("-", text.replace("$", "") if text.count("$") % 2 == 0 else text)
    text = re.sub("[$€£¥₹~≈]", " ", text)
    text = _WORD_NUMBER.sub(_digits_of_word, text)
    text = _SIGN_GAP.sub(r"\1\2-", _SIGN_WORD.sub("-", text))
    return _SPACED_SLASH.sub("/", text)


def _plain_latex(text: str) -> str:
    text = re.sub(r"\\pm(?![A-Za-z])", "±", _DEGREE.sub(" ", text))
    text = unwrap_commands(text)
    for _ in range(4):
        text, replaced = _FRACTION.subn(_slash, text)
        text = unwrap_commands(text)
        if not replaced:
            break
    text = _TEN_POWER.sub(r"1e\1", _TIMES_TEN.sub(r"e\1", text))
    text = re.sub(r"(?<=\d)\s+(?=e[+-]?\d)", "", text)
    text = _UNIT_EXPONENT.sub("", text)
    return _HARMLESS_COMMAND.sub(" ", text).replace("{", " ").replace("}", " ")


def _slash(match: re.Match[str]) -> str:
    numerator, denominator = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
    joined = f"{numerator.strip()}/{denominator.strip()}"
    before = match.string[: match.start()]
    return f" {joined} " if before[-1:].isdigit() else joined


def _digits_of_word(match: re.Match[str]) -> str:
    if match[3]:
        return match[0] if match.string[: match.start()].rstrip()[-1:].isdigit() else "\x00"
    digits = str(NUMBER_WORDS[match[1].lower()])
    return f"{digits}/{_PARTS[match[2].lower()]}" if match[2] else digits


def _read_chunk(chunk: re.Match[str]) -> _Part | None:
    body = chunk["body"].rstrip(".,:/'")
    plain = _PLAIN.fullmatch(body)
    if plain is None:
        return None
    value = float(plain[1].replace(",", "") + (plain[2] or ""))
    proper = False
    if plain[3]:
        denominator = float(plain[3].replace(",", ""))
        if denominator == 0.0:
            return None
        value /= denominator
        proper = not chunk["sign"] and value < 1.0
    if chunk["magnitude"]:
        value *= _MAGNITUDES[chunk["magnitude"].lower()]
    if chunk["sign"] == "-":
        value = -value
    if not math.isfinite(value):
        return None
    end = chunk.end() if chunk["percent"] or chunk["magnitude"] else chunk.start("body") + len(body)
    return _Part(Number(value, bool(chunk["percent"])), chunk.start(), end, body.isdigit(), proper)


def readings(reply: Number, gold: Number) -> tuple[float, ...]:
    """The values a reply may stand for, on the scale of the gold.

    The gold's own form decides: against a percent gold, and between plain numbers, only the number as written; a
    percent reply to a plain gold between 0 and 1 also counts as its hundredth.
    """
    if reply.percent and not gold.percent and 0.0 <= gold.value <= 1.0:
        return (reply.value, reply.value / 100.0)
    return (reply.value,)


def close(value: float, gold: float, relative: float = 1e-4, absolute_at_zero: float = 1e-6) -> bool:
    """Equal within a relative tolerance; at a gold of zero, within an absolute one."""
    limit = absolute_at_zero if gold == 0.0 else relative * abs(gold)
    return abs(value - gold) <= limit * (1.0 + 1e-9)
