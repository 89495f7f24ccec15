"""Scorer of yes/no questions, OVO-Bench's CRR and SSR among them."""

from __future__ import annotations

from ktr.rewards.affirmation import meaning_of, meanings
from ktr.rewards.choice import score_choice
from ktr.rewards.text import boxed_contents, unwrap
from ktr.rewards.verdict import Outcome, right_or_wrong


def score_yes_no(answer: str, gold: str, options: tuple[str, ...] = (), *, whole: bool = False) -> Outcome:
    """1 when the answer says yes or no as the gold does, and not both. With options it is a multiple choice.

    Raises ValueError when the gold says neither.
    """
    if options:
        return score_choice(answer, gold, options, whole=whole)
    wanted = meaning_of(unwrap(gold))
    if wanted is None:
        raise ValueError(f"the gold answer of a yes/no question must be yes or no, not {gold!r}")
    boxed = set(boxed_contents(answer))
    if len(boxed) > 1:
        return Outcome(0.0, "ambiguous")
    found = meanings(unwrap(boxed.pop() if boxed else answer))
    if len(found) != 1:
        return Outcome(0.0, "ambiguous" if found else "no_answer")
    (meaning,) = found
    return right_or_wrong(meaning == wanted, "yes" if meaning else "no")
