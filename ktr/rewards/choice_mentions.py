"""Mentions of options in a text: which tokens name one, which are negated, stated, or joined into a list."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ktr.rewards.choice_wording import (
    AFTER_LABEL_A,
    AFTER_LABEL_I,
    CLOSE,
    JOINED,
    KIND,
    LETTER,
    LINE_START,
    MASK,
    NAMES_BEFORE,
    NEGATED_AFTER,
    NEGATED_BEFORE,
    STATED_AFTER,
    STATED_BEFORE,
)
from ktr.rewards.options import Options

_LONGEST_LINK = 40  # characters between two mentions of one list


@dataclass(frozen=True)
class Mention:
    index: int
    start: int
    end: int
    plain: bool  # a bare token in the text, not wrapped and not called an option


def mention_of(match: re.Match[str], options: Options) -> Mention | None:
    """The option a token names; None for the article "A", the pronoun "I", and letters of names ("vitamin C")."""
    group = next(name for name in ("called", "wrapped", "plain", "lower") if match[name] is not None)
    label, text = match[group], match.string
    index = options.index_of_label(label)
    assert index is not None, label
    mention = Mention(index, match.start(group), match.end(group), group in ("plain", "lower"))
    after = text[mention.end :]
    if not mention.plain or not options.lettered:
        article = group == "called" and label in ("a", "i") and re.match(rf"\s+[{LETTER}{MASK}]", after)
        return None if article else mention
    if label.upper() in "AI" and re.match(rf"\s+(?![B-HJ-Z](?!\w))[{LETTER}{MASK}]", after):
        follows = AFTER_LABEL_A if label.upper() == "A" else AFTER_LABEL_I
        if label.islower() or not follows.match(after):
            return None
    if not any(options.texts):  # The options are names themselves: points of a graph, arrows of a picture.
        return mention
    return None if NAMES_BEFORE.search(text, max(0, mention.start - 20), mention.start) else mention


def is_casual(text: str, mention: Mention) -> bool:
    """Whether a bare token is a lower-case letter in running text, not one that opens the answer like "b) ..."."""
    opens = not text[: mention.start].strip(" (*\"'") and text[mention.end : mention.end + 1] in (".", ")", ":")
    return _is_lower(text, mention) and not opens


def _is_lower(text: str, mention: Mention) -> bool:
    return text[mention.start : mention.end].islower()


def positive(text: str, mentions: list[Mention]) -> list[Mention]:
    """The mentions that are not negated, a negation carrying over lists: "neither A nor B", "A and D are wrong"."""
    before = [bool(NEGATED_BEFORE.search(text, max(0, m.start - 60), m.start)) for m in mentions]
    after = [bool(NEGATED_AFTER.match(text[m.end : m.end + 80])) for m in mentions]
    links = [link_between(text, left, right) for left, right in zip(mentions, mentions[1:], strict=False)]
    for i, link in enumerate(links):
        if before[i] and link in ("or", "nor", "and", "/", "oder", "或", "和"):
            before[i + 1] = True
    for i in reversed(range(len(links))):
        if after[i + 1] and links[i]:
            after[i] = True
    return [
        m
        for m, negated_before, negated_after in zip(mentions, before, after, strict=True)
        if not (negated_before or negated_after)
    ]


def link_between(text: str, left: Mention, right: Mention) -> str | None:
    """What joins two mentions into a list ("," or "or"; "" for nothing but space), None when they are no list."""
    if not 0 <= right.start - left.end <= _LONGEST_LINK:
        return None
    match = JOINED.fullmatch(text, left.end, right.start)
    return None if match is None else match["link"].strip().lower()


def is_stated(text: str, mention: Mention) -> bool:
    if re.match(rf"{CLOSE}*\s*\?", text[mention.end :]):
        return False
    if STATED_AFTER.match(text[mention.end : mention.end + 80]):
        return not (mention.plain and _is_lower(text, mention))
    if not STATED_BEFORE.search(text, max(0, mention.start - 80), mention.start):
        return False
    return not _is_lower(text, mention) or bool(re.match(rf"{CLOSE}*\s*(?:[^\w\s]|$|\s\D)", text[mention.end :]))


def opening_mention(text: str, mentions: list[Mention], texts_named: list[Mention]) -> Mention | None:
    """The label that opens the answer, when what follows it is not another option's label or text."""
    first = mentions[0]
    if not re.fullmatch(rf"[\W_]*+(?:{KIND})?[\W_]*+", text[: first.start], re.IGNORECASE):
        return None
    after = text[first.end :]
    if not re.match(rf"\s*(?:[^\w\s]|{MASK}|\n)|\s+(?:because|since|as|is)\b", after):
        return None
    other_lines = {
        m.index
        for m in mentions[1:]
        if re.match(r"\s*[.):]", text[m.end :]) and LINE_START.search(text, max(0, m.start - _LONGEST_LINK), m.start)
    }
    follows = next((m for m in texts_named if not text[first.end : m.start].strip(" .):,;-–\n")), None)
    if other_lines - {first.index} or (follows is not None and follows.index != first.index):
        return None
    return first
