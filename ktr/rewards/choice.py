"""Scorer of multiple choice: the answer must name exactly one of the row's options.

An answer is read in the order in which people are explicit: the whole answer is a label, an option's line or an
option's text; a statement ("the answer is", "I choose", "is correct"), the last one counting; a label that opens the
answer; a single label anywhere; the text of a single option. What is negated ("not B but C") is not named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ktr.rewards.affirmation import meaning_of, meanings
from ktr.rewards.choice_mentions import (
    Mention,
    is_casual,
    is_stated,
    link_between,
    mention_of,
    opening_mention,
    positive,
)
from ktr.rewards.choice_wording import (
    CLOSE,
    ENDS_ITEM,
    ENUMERATOR,
    KIND,
    LAST_PARAGRAPH,
    LETTER,
    MASK,
    NUMBERED,
    OPEN,
    OPENING_LABEL,
)
from ktr.rewards.options import Options, comparable, gold_index, read_options
from ktr.rewards.text import ANSWER_WORDS, boxed_contents, collapse, unwrap
from ktr.rewards.verdict import Outcome, Status, right_or_wrong

_MOST_MENTIONS = 500  # of labels in an answer whose wording is still weighed


@dataclass(frozen=True)
class _Patterns:
    whole: re.Pattern[str]
    with_text: re.Pattern[str]
    token: re.Pattern[str]
    opening: re.Pattern[str]
    several: re.Pattern[str]  # nothing but labels


def score_choice(answer: str, gold: str, options: tuple[str, ...], *, whole: bool = False) -> Outcome:
    """1 when the answer names the gold option and no other; see the module's text for how it is read.

    Args:
        whole: the answer is a whole reply without tags: the label that opens it decides, as in benchmarks' own scripts
            (TempCompass, Video-MME), whatever text or other lines follow it.

    Raises ValueError when the gold names none of the options.
    """
    choices = read_options(options)
    right = gold_index(gold, choices)
    named, status = read_choice(answer, choices, whole=whole)
    if named is None:
        return Outcome(0.0, status)
    return right_or_wrong(named == right, choices.labels[named])


def read_choice(answer: str, options: Options, *, whole: bool = False) -> tuple[int | None, Status]:
    """The index of the one option that the answer names, or None with the reason. See `score_choice` for `whole`."""
    boxed = set(boxed_contents(answer))
    if len(boxed) > 1:
        return None, "ambiguous"
    text = unwrap(boxed.pop() if boxed else answer)
    if options.lettered and options.index_of_text(text) is None:
        text = NUMBERED.sub(lambda match: _lettered(match, options), text)
    patterns = _patterns(options.labels)
    label = patterns.whole.fullmatch(text)
    if label is not None and (found := options.index_of_label(label["label"])) is not None:
        return found, "ok"
    if (found := options.index_of_text(text)) is not None:
        return found, "ok"
    line = patterns.with_text.match(text)
    if line is not None and (found := options.index_of_text(line["text"])) is not None:
        named = options.index_of_label(line["label"])
        same_text = named is not None and options.texts[named] == comparable(line["text"])
        if found == named or same_text or (whole and named is not None):
            return named, "ok"
        return None, "ambiguous"
    if (found := options.index_of_text(ENUMERATOR.sub("", text))) is not None:
        return found, "ok"
    return _read_sentence(text, options, patterns, whole)


@lru_cache(maxsize=512)
def _patterns(labels: tuple[str, ...]) -> _Patterns:
    label = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    # Possessive quantifiers keep long runs of punctuation linear.
    sides = r"[\s\"'()\[\]{}<>.,:;!?*“”‘’«»、。#_~-]*+"
    lead = rf"(?:\s*+(?:the\s+)?(?:(?:best|correct|final|right|my)\s+)*(?:{ANSWER_WORDS}|{KIND})\s*+(?:is\b)?)*+"
    return _Patterns(
        whole=re.compile(
            rf"{sides}{lead}{sides}(?:{KIND}{sides})?(?P<label>{label}){sides}(?:{KIND}{sides})?", re.IGNORECASE
        ),
        with_text=re.compile(
            rf"{sides}{lead}{sides}(?P<label>{label})(?![{LETTER}0-9])[\s()\[\].,:;*“”、=-]*+(?P<text>.+)",
            re.IGNORECASE | re.DOTALL,
        ),
        token=re.compile(
            rf"(?<![{LETTER}0-9_'’.\\-])(?:(?P<kind>{KIND}\s*[:#]?\s*{OPEN}*)(?P<called>(?i:{label}))"
            rf"|{OPEN}\s*(?P<wrapped>(?i:{label}))(?=\s*{CLOSE})|(?P<plain>{label})|(?P<lower>(?i:{label})))"
            rf"(?![{LETTER}0-9_]|['’-][{LETTER}]|\.[A-Z]\b)"
        ),
        opening=re.compile(
            rf"{sides}(?:{KIND}\s*:?\s*{OPEN}*\s*)?(?<![{LETTER}])(?P<label>[a-z])\s*[.):]", re.IGNORECASE
        ),
        several=re.compile(rf"(?:{label})(?:(?:[\s,;/&|+]|or|and)*+(?:{label}))+"),
    )


@lru_cache(maxsize=512)
def _texts_pattern(texts: frozenset[str]) -> re.Pattern[str]:
    """Any of the options' texts, the longest first."""
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(_text_pattern(text) for text in longest_first), re.IGNORECASE)


def _text_pattern(text: str) -> str:
    left = r"(?<![\w])(?<!\d[.,])" if text[0].isascii() else ""
    right = r"(?![\w])(?![.,]\d)" if text[-1].isascii() else ""
    return left + r"\s+".join(map(re.escape, text.split())) + right


def _read_sentence(text: str, options: Options, patterns: _Patterns, whole: bool) -> tuple[int | None, Status]:
    texts_named: list[Mention] = []
    masked = text
    said = collapse(text.casefold())  # compiling costs more than all the rest
    present = frozenset(own for own in options.texts if own in said and (len(own) > 1 or own.isdigit()))
    if present:
        texts = _texts_pattern(present)
        for match in texts.finditer(text):
            if (index := options.index_of_text(match[0])) is not None:
                texts_named.append(Mention(index, match.start(), match.end(), False))
        masked = texts.sub(lambda match: MASK * len(match[0]), text)
    mentions = [mention for match in patterns.token.finditer(masked) if (mention := mention_of(match, options))]
    if len(mentions) > _MOST_MENTIONS:
        return _only({mention.index for mention in mentions})
    mentions = positive(masked, mentions)
    stated = [mention for mention in mentions if is_stated(masked, mention)]
    mentions = [mention for mention in mentions if not mention.plain or not is_casual(masked, mention)]
    if stated:
        return _unless_joined(masked, stated[-1], [*mentions, stated[-1]])
    if whole and (label := OPENING_LABEL.match(masked)) is not None:
        found = options.index_of_label(label["label"])
        return found, "no_answer" if found is None else "ok"
    if whole and (last := LAST_PARAGRAPH.search(text)) is not None:
        found = _says(last[1], options, patterns)
        if found is not None:
            return found, "ok"
    opening = patterns.opening.match(masked)
    if opening is not None and options.lettered and options.index_of_label(opening["label"]) is None:
        return None, "no_answer"
    if mentions and (first := opening_mention(masked, mentions, texts_named)) is not None:
        return _unless_joined(masked, first, mentions)
    if options.lettered or any(not mention.plain for mention in mentions):
        usable = mentions if options.lettered else [mention for mention in mentions if not mention.plain]
        if usable:
            return _only({mention.index for mention in usable})
    if patterns.several.fullmatch(text):
        return None, "ambiguous"
    says = [meaning_of(own) for own in options.texts]
    if sorted(says, key=str) == [False, True]:
        found_meanings = meanings(text)
        return _only({says.index(meaning) for meaning in found_meanings})
    return _only({mention.index for mention in positive(text, texts_named)})


def _lettered(match: re.Match[str], options: Options) -> str:
    """ "Option 2" as "option B"; as it stands where there are fewer options."""
    number = int(match["number"])
    return f"option {options.labels[number - 1]}" if number <= len(options.labels) else match[0]


def _says(line: str, options: Options, patterns: _Patterns) -> int | None:
    """The option that a line is, and nothing else: its label, its text, or both."""
    label = patterns.whole.fullmatch(line)
    found = options.index_of_text(line) if label is None else options.index_of_label(label["label"])
    if found is None and (both := patterns.with_text.match(line)) is not None:
        found = options.index_of_text(both["text"])
        return found if found == options.index_of_label(both["label"]) else None
    return found


def _only(named: set[int]) -> tuple[int | None, Status]:
    if len(named) == 1:
        return named.pop(), "ok"
    return None, "ambiguous" if named else "no_answer"


def _unless_joined(text: str, mention: Mention, mentions: list[Mention]) -> tuple[int | None, Status]:
    """The mentioned option, unless it stands in a list with another one ("B or C", "A, B")."""
    for other in mentions:
        left, right = sorted((mention, other), key=lambda m: m.start)
        if other.index == mention.index or left.end > right.start:
            continue
        link = link_between(text, left, right)
        if link is None:
            continue
        if link.isalpha() or link in ("/", "|", "&", "+") or ENDS_ITEM.match(text[right.end :]):
            return None, "ambiguous"
    return mention.index, "ok"
