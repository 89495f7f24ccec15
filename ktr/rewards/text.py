"""Comparing and splitting texts, in any script."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WRAPPERS = (
    "boxed|fbox|text|textbf|textit|textrm|textsf|texttt|mathrm|mathbf|mathit|mathsf|mathtt|operatorname|emph|underline"
)
_DEEPEST_WRAPPING = 16
_WRAPPED = re.compile(r"\\(?:" + _WRAPPERS + r")\s*\{([^{}]*)\}")
_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|[{}]")
_MATH_DELIMITERS = re.compile(r"\\[()\[\]]|\$")
_MARKDOWN = re.compile(r"\*+|`+|(?<!\w)_+|_+(?!\w)|^[ \t]*#+[ \t]+", re.MULTILINE)

# Scripts written without spaces between words: Han, kana, bopomofo, Thai, Lao, Burmese, Khmer, Tibetan.
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_CHUNK = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")
_WORD = re.compile(f"[{_UNSPACED}]|(?:(?![{_UNSPACED}_])\\w)+")

ANSWER_WORDS = (
    r"answers?|ans|antwort|l[öo]sung|respuesta|r[ée]ponse|resposta|risposta|antwoord|svar|odpowied[źz]|cevap|jawaban"
    r"|ответ|答案|答え|解答|正解|정답|답"
)
_IS = r"is|are|was|would be|should be|must be|will be|ist|lautet|es|est|è|é|to|является|是|为|應為|应为|は|은|는"
ANSWER_CUE = re.compile(
    rf"(?<![^\W\d_])(?:(?:the|my|your|our|so|and|final|correct|right|best|die|la|le|l'|el|a|o|richtige|correcta|bonne)"
    rf"\s+){{0,4}}(?:{ANSWER_WORDS})(?:\s+(?:here|option|choice))?\s*(?:(?:{_IS})(?![^\W\d_])\s*[:=]?|[:=：]|→|->)\s*",
    re.IGNORECASE,
)


def collapse(text: str) -> str:
    return " ".join(text.split())


@lru_cache(maxsize=16384)
def normalise(text: str) -> str:
    """The form texts are compared in: Unicode NFKC, case folded, single spaces, without one final stop."""
    folded = collapse(unicodedata.normalize("NFKC", text).casefold())
    return folded[:-1].rstrip() if folded.endswith((".", "。")) else folded


def unwrap(text: str) -> str:
    """NFKC text without LaTeX wrappers (`\\boxed{}`, `\\text{}`, `$`) and without Markdown emphasis."""
    text = unicodedata.normalize("NFKC", text)
    if "\\" in text or "$" in text:
        text = _MATH_DELIMITERS.sub("", unwrap_commands(text))
    return _MARKDOWN.sub("", text).strip()


def unwrap_commands(text: str) -> str:
    """Replace `\\boxed{x}`, `\\text{x}` and their like by `x`, inside out, up to 16 in each other."""
    for _ in range(_DEEPEST_WRAPPING):
        text, replaced = _WRAPPED.subn(r" \1 ", text)
        if not replaced:
            break
    return text


def boxed_contents(text: str) -> list[str]:
    """What stands in each outermost `\\boxed{...}`, braces balanced, in order; an unclosed box is left out."""
    contents: list[str] = []
    if "boxed" not in text and "fbox" not in text:
        return contents
    open_braces: list[tuple[int, bool]] = []
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            open_braces.append((brace.end(), len(brace[0]) > 1))
        elif open_braces:
            start, boxed = open_braces.pop()
            if boxed and not any(outer for _, outer in open_braces):
                contents.append(text[start : brace.start()].strip())
    return contents


def chunks(text: str) -> list[str]:
    """Whitespace words, except that a character of a script without spaces stands alone.

    >>> chunks("STOP 停车")
    ['STOP', '停', '车']
    """
    return text.split() if text.isascii() else _CHUNK.findall(text)


def words(text: str) -> list[str]:
    """Runs of letters and digits; characters of scripts without spaces stand alone; punctuation is dropped."""
    return _WORD.findall(text)


def strip_answer_cue(text: str) -> str:
    """The text without a leading "The answer is" or "Answer:" (in any of several languages)."""
    cue = ANSWER_CUE.match(text)
    return text[cue.end() :] if cue is not None and cue.end() < len(text) else text


def after_last_cue(text: str) -> str:
    """The rest of the line after the last answer cue that something follows, or the whole text without a cue."""
    for cue in reversed(list(ANSWER_CUE.finditer(text))):
        rest = text[cue.end() :].strip()
        if rest:
            return rest.splitlines()[0]
    return text
