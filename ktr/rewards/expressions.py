"""A fast first look at two mathematical expressions, before the full verifier is asked.

Algebraic expressions (numbers, letters, sums, products, fractions, roots, powers, pi) and tuples of them are evaluated
at a few fixed complex points: equal values there mean equal expressions, clearly different ones mean different
expressions. Everything else is left undecided.
"""

from __future__ import annotations

import cmath
import re
from functools import lru_cache

_POINTS = (0.7390851, -1.3247180, 2.2360680, -0.4142136 + 0.3819660j)
_LARGEST_EXPONENT = 64.0
_DEEPEST_NESTING = 40
_EQUAL, _DIFFERENT = 1e-9, 1e-5

_TOKEN = re.compile(r"\s*(?:(\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)|([A-Za-z])|(\\[A-Za-z]+)|(.))")
_NOISE = re.compile(r"\\(?:left|right|displaystyle|limits|[,;:! ])|\$|\\[()\[\]]")
_SPELLING = (
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])|[×·]"), "*"),
    (re.compile(r"\\div(?![A-Za-z])|÷"), "/"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"π|(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi "),
    (re.compile(r"(?<![A-Za-z\\])sqrt(?![A-Za-z])"), r"\\sqrt"),
    (re.compile(r"√"), r"\\sqrt "),
    (re.compile(r"[−–]"), "-"),
)
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{3,}")
_ASSIGNED = re.compile(r"\s*[A-Za-z]\s*=(?!=)")


class _Unreadable(Exception):
    """The text is outside the small grammar."""


def same_value(first: str, second: str) -> bool | None:
    """Whether two expressions are equal; None when one of them is not in the grammar, or it is too close to tell.

    >>> same_value(r"\\\\frac{2\\\\sqrt{3}}{4}", "sqrt(3)/2"), same_value("x + 1", "x + 2"), same_value("sin x", "x")
    (True, False, None)
    """
    left, right = _values(first), _values(second)
    if left is None or right is None:
        return None
    if left[0] != right[0] or len(left[1]) != len(right[1]):
        return None
    relations = [_relation(a, b) for a, b in zip(left[1], right[1], strict=True)]
    if False in relations:
        return False
    return None if None in relations else True


def _relation(a: complex, b: complex) -> bool | None:
    gap = abs(a - b) / max(1e-12, abs(a), abs(b))
    if gap <= _EQUAL:
        return True
    return False if gap >= _DIFFERENT else None


@lru_cache(maxsize=16384)
def _values(text: str) -> tuple[str, tuple[complex, ...]] | None:
    """The brackets around the text's elements ("" for a single one), and each element's values at the points."""
    text = _NOISE.sub(" ", text).strip().rstrip(".")
    for pattern, replacement in _SPELLING:
        text = pattern.sub(replacement, text)
    if not text or _WORD.search(text):
        return None
    brackets, elements = _elements(text)
    if not brackets:
        elements = [_ASSIGNED.sub("", text, count=1)]
    try:
        values = [_Reader(element, point).value() for element in elements for point in _POINTS]
    except (_Unreadable, ArithmeticError, RecursionError, ValueError):
        return None
    return brackets, tuple(values)


def _elements(text: str) -> tuple[str, list[str]]:
    if text[0] not in "([" or text[-1] not in ")]":
        return "", [text]
    parts, depth, start = [], 0, 1
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and at < len(text) - 1:
            return "", [text]
        if depth == 1 and character == ",":
            parts.append(text[start:at])
            start = at + 1
    if not parts:
        return "", [text]
    parts.append(text[start:-1])
    # "(1,234)" may be a pair or a number in brackets.
    if any(re.fullmatch(r"\d{3}", part) for part in parts[1:]):
        return "?", parts
    return text[0] + text[-1], parts


class _Reader:
    """Recursive descent over one element, evaluated at one point; every letter has its own value there."""

    def __init__(self, text: str, point: complex) -> None:
        self._tokens = [match.group().strip() for match in _TOKEN.finditer(text) if match.group().strip()]
        self._point = point
        self._at = 0
        self._depth = 0

    def value(self) -> complex:
        value = self._sum()
        if self._at != len(self._tokens) or not cmath.isfinite(value):
            raise _Unreadable
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise _Unreadable
        self._at += 1
        return token

    def _sum(self) -> complex:
        self._depth += 1
        if self._depth > _DEEPEST_NESTING:
            raise _Unreadable
        value = self._product()
        while self._peek() in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        self._depth -= 1
        return value

    def _product(self) -> complex:
        sign = 1.0
        while self._peek() in ("+", "-"):
            sign = -sign if self._take() == "-" else sign
        value = sign * self._power()
        while True:
            token = self._peek()
            if token in ("*", "/"):
                self._take()
                factor = self._signed_power()
                value = value * factor if token == "*" else value / factor
            elif token.isalpha() or token in ("(", "\\frac", "\\sqrt", "\\pi"):
                value = value * self._power()
            else:
                return value

    def _signed_power(self) -> complex:
        if self._peek() == "-":
            self._take()
            return -self._power()
        return self._power()

    def _power(self) -> complex:
        value = self._atom()
        if self._peek() != "^":
            return value
        self._take()
        exponent = self._group() if self._peek() == "{" else self._signed_power()
        if abs(exponent) > _LARGEST_EXPONENT:
            raise _Unreadable
        return complex(value) ** exponent

    def _atom(self) -> complex:
        token = self._take()
        if token[0].isdigit() or (token[0] == "." and len(token) > 1):
            return complex(float(token.replace(",", "")))
        if token == "(":
            value = self._sum()
            self._take(")")
            return value
        if token == "\\pi":
            return complex(cmath.pi)
        if token == "\\frac":
            return self._group() / self._group()
        if token == "\\sqrt":
            return self._root()
        if token == "{":
            self._at -= 1
            return self._group()
        # e and i may be constants: only the verifier knows.
        if token.isalpha() and token not in "ei":
            return self._point * (0.5 + ord(token) * 0.7548776662 * (1.0 + abs(self._point)) % 1.0)
        raise _Unreadable

    def _root(self) -> complex:
        order: complex = 2.0
        if self._peek() == "[":
            self._take()
            order = self._sum()
            self._take("]")
        radicand = self._group() if self._peek() == "{" else self._atom()
        if not order:
            raise _Unreadable
        return cmath.sqrt(radicand) if order == 2.0 else complex(radicand) ** (1.0 / order)

    def _group(self) -> complex:
        """`{...}`, or the single digit or letter that LaTeX takes in its place."""
        if self._peek() == "{":
            self._take()
            value = self._sum()
            self._take("}")
            return value
        token = self._peek()
        if token.isdigit() and len(token) > 1:
            self._tokens[self._at : self._at + 1] = [token[0], token[1:]]
        return self._atom()
