"""What a text says to a yes/no question, in several languages."""

from __future__ import annotations

import re

from ktr.rewards.text import after_last_cue, normalise

_YES = ("yes", "y", "1", "yeah", "yep", "true", "oui", "ja", "sí", "si", "sim", "да", "是", "是的", "对", "はい", "예")
_NO = ("no", "n", "0", "nope", "false", "non", "nein", "não", "нет", "否", "不", "不是", "不对", "いいえ", "아니요")
_MEANING = {**dict.fromkeys((*_YES, "네"), True), **dict.fromkeys(_NO, False)}
_WORD = re.compile(
    r"(?<![^\W\d_])(not\s+)?(yes|yeah|yep|no|nope|true|false|oui|non|ja|nein)(?![^\W\d_])", re.IGNORECASE
)
_FIRST = re.compile(
    r"\W*(?:(?P<no>not (?:at all|really)|never)\b|(?P<word>\w+)\s*(?=[.,;:!。，\n]|-\s|[–—]|$|\()"
    r"|(?P<plain>yes|yeah|yep|no|nope)\s)",
    re.IGNORECASE,
)
_OTHER = re.compile(r"\W*(?:(?:and|or)\W+)?(\w+)\W*$", re.IGNORECASE)


def meaning_of(text: str) -> bool | None:
    """True or False for a text that is a word for yes or no, None for any other."""
    return _MEANING.get(normalise(text).strip(" \"'()[]{}.,!:;"))


def meanings(text: str) -> set[bool]:
    """What a text says: as a whole, by its cue, by the word that opens it, else by all it holds ("not true" is no)."""
    stated = after_last_cue(text)
    for candidate in (text, stated):
        if (meaning := meaning_of(candidate)) is not None:
            return {meaning}
    for candidate in (stated, text):
        if found := _opening(candidate):
            return found
    return {_MEANING[word.casefold()] != bool(denied) for denied, word in _WORD.findall(stated) or _WORD.findall(text)}


def _opening(text: str) -> set[bool]:
    first = _FIRST.match(text)
    if first is None:
        return set()
    word = first["word"] or first["plain"]
    meaning = _MEANING.get(word.casefold()) if word else False
    if meaning is None:
        return set()
    follows = _OTHER.match(text[first.end() :])
    other = _MEANING.get(follows[1].casefold()) if follows else None
    return {meaning} if other is None else {meaning, other}
