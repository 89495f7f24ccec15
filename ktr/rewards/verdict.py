"""What scoring one reply says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["ok", "no_answer", "ambiguous", "truncated", "unparsable", "abstained"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The score of one reply.

    `accuracy` lies in [0, 1], or is None when only a judge could tell. `format` is 1.0 or 0.0. `parsed` is the
    answer as it was understood (an option's label, a number, a normalised text), None where nothing was.
    `detail` names what decided when it was not the plain rule: "judge", or why a verifier gave up.

    >>> Verdict(accuracy=1.0, format=1.0, status="ok", parsed="B")
    Verdict(accuracy=1.0, format=1.0, status='ok', parsed='B', detail='')
    """

    accuracy: float | None
    format: float
    status: Status
    parsed: str | None
    detail: str = ""


class Outcome(NamedTuple):
    """What the scorer of one problem type says about an answer text, before format is looked at."""

    accuracy: float | None
    status: Status
    parsed: str | None = None
    detail: str = ""


def right_or_wrong(right: bool, parsed: str) -> Outcome:
    return Outcome(1.0 if right else 0.0, "ok", parsed)
