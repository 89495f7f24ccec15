"""Scorer of yes/no questions, OVO-Bench's CRR and SSR among them."""

from __future__ import annotations

import re

from ktr.rewards.choice import score_choice
from ktr.rewards.text import after_last_cue, boxed_contents, normalise, unwrap
from ktr.rewards.verdict import Outcome, right_or_wrong

_YES = ("yes", "y", "yeah", "yep", "true", "oui", "ja", "sí", "si", "sim", "да", "是", "是的", "对", "はい", "예", "네")
_NO = ("no", "n", "nope", "false", "non", "nein", "não", "нет", "否", "不", "不是", "不对", "いいえ", "아니요")
_MEANING = {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}
_WORD = re.compile(r"(?<![^\W\d_])(?:yes|yeah|yep|no|nope|true|false|oui|non|ja|nein)(?![^\W\d_])", re.IGNORECASE)
_FIRST = re.compile(r"\W*(\w+)\s*(?=[.,;:!。，\n]|-\s|[–—]|$|\()")


def score_yes_no(answer: str, gold: str, options: tuple[str, ...] = ()) -> Outcome:
    """1 when the answer says yes or no as the gold does, and not both. With options it is a multiple choice.

    Raises ValueError when the gold says neither.
    """
    if options:
        return score_choice(answer, gold, options)
    wanted = _MEANING.get(normalise(unwrap(gold)))
    if wanted is None:
        raise ValueError(f"the gold answer of a yes/no question must be yes or no, not {gold!r}")
    boxed = set(boxed_contents(answer))
    if len(boxed) > 1:
        return Outcome(0.0, "ambiguous")
    meanings = _meanings(unwrap(boxed.pop() if boxed else answer))
    if len(meanings) != 1:
        return Outcome(0.0, "ambiguous" if meanings else "no_answer")
    (meaning,) = meanings
    return right_or_wrong(meaning == wanted, "yes" if meaning else "no")


def _meanings(text: str) -> set[bool]:
    """What the text says: as a whole, by its cue, by its first word, else by every yes and no in it."""
    stated = after_last_cue(text)
    for candidate in (text, stated):
        whole = normalise(candidate).strip(" \"'()[]{}.,!:;")
        if whole in _MEANING:
            return {_MEANING[whole]}
    first = _FIRST.match(stated)
    if first is not None and (meaning := _MEANING.get(first[1].casefold())) is not None:
        rest = stated[first.end() :]
        next_word = re.match(r"\W*(?:(?:and|or)\W+)?(\w+)\W*$", rest)
        other = _MEANING.get(next_word[1].casefold()) if next_word else None
        return {meaning} if other is None else {meaning, other}
    return {_MEANING[word.casefold()] for word in _WORD.findall(stated)}
