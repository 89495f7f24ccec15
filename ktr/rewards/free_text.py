"""Scorers of texts: OCR, free-form and open-ended answers."""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import cache, lru_cache
from typing import Any

from ktr.rewards.text import chunks, normalise, strip_answer_cue, unwrap, words
from ktr.rewards.verdict import Outcome, right_or_wrong


def score_transcription(answer: str, gold: str) -> Outcome:
    """1 - word error rate, not below 0; characters count as words in scripts without spaces.

    Case and punctuation matter; Unicode forms of one character (full width, composed accents) do not.
    """
    reference, hypothesis = (chunks(unicodedata.normalize("NFKC", text)) for text in (gold, answer))
    if not reference:
        raise ValueError("the gold answer of an OCR question is empty")
    return Outcome(word_accuracy(reference, hypothesis), "ok", answer.strip())


def score_free_form(answer: str, gold: str) -> Outcome:
    """1 for an exact match of the normalised texts, else the mean F of ROUGE-1, ROUGE-2 and ROUGE-L.

    ROUGE orders longer than the gold are left out, words are stemmed, characters of scripts without spaces are words.
    """
    shown = normalise(answer)
    if same_text(answer, gold):
        return right_or_wrong(True, shown)
    return Outcome(_mean_rouge(tuple(_rouge_words(gold)), tuple(_rouge_words(answer))), "ok", shown)


def score_open_ended(answer: str, gold: str) -> Outcome:
    """1 for an exact match of the normalised texts; otherwise only a judge can tell (accuracy None)."""
    shown = normalise(answer)
    return right_or_wrong(True, shown) if same_text(answer, gold) else Outcome(None, "abstained", shown)


def same_text(answer: str, gold: str) -> bool:
    wanted = normalise(gold)
    return wanted in (normalise(answer), normalise(strip_answer_cue(answer))) or _bare(answer) == _bare(gold)


def _bare(text: str) -> str:
    return normalise(normalise(strip_answer_cue(unwrap(text))).strip("\"'“”‘’«» "))


def word_accuracy(reference: list[str], hypothesis: list[str]) -> float:
    """1 - word error rate, not below 0; an empty reference counts as one word."""
    length = max(1, len(reference))
    if len(hypothesis) - len(reference) >= length:  # as many insertions at least: no need to align long texts
        return 0.0
    return max(0.0, 1.0 - edit_distance(reference, hypothesis) / length)


def edit_distance(reference: list[str], hypothesis: list[str]) -> int:
    """Levenshtein distance: the least number of words to substitute, insert or delete."""
    start = 0
    while start < min(len(reference), len(hypothesis)) and reference[start] == hypothesis[start]:
        start += 1
    reference, hypothesis = reference[start:], hypothesis[start:]
    while reference and hypothesis and reference[-1] == hypothesis[-1]:
        reference, hypothesis = reference[:-1], hypothesis[:-1]
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, start=1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], best
    return row[-1]


@lru_cache(maxsize=16384)
def _rouge_words(text: str) -> list[str]:
    return [_stem(word) for word in words(normalise(strip_answer_cue(text)))]


@cache
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer  # type: ignore[import-untyped]

    return PorterStemmer()


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return _stemmer().stem(word) if len(word) > 3 and word.isascii() else word


def _mean_rouge(gold: tuple[str, ...], answer: tuple[str, ...]) -> float:
    """Mean F-measure of ROUGE-1, -2 and -L over word sequences, without the orders longer than the gold."""
    if not gold or not answer:
        return 0.0
    scores = [_ngram_f(gold, answer, order) for order in (1, 2) if order <= len(gold)]
    scores.append(_f_measure(_common_subsequence(gold, answer), len(gold), len(answer)))
    return sum(scores) / len(scores)


def _ngram_f(gold: tuple[str, ...], answer: tuple[str, ...], order: int) -> float:
    wanted = Counter(gold[i : i + order] for i in range(len(gold) - order + 1))
    given = Counter(answer[i : i + order] for i in range(len(answer) - order + 1))
    return _f_measure((wanted & given).total(), wanted.total(), given.total())


def _f_measure(common: int, gold: int, answer: int) -> float:
    return 2.0 * common / (gold + answer) if common else 0.0


def _common_subsequence(gold: tuple[str, ...], answer: tuple[str, ...]) -> int:
    row = [0] * (len(answer) + 1)
    for word in gold:
        diagonal = 0
        for j, other in enumerate(answer, start=1):
            diagonal, row[j] = row[j], diagonal + 1 if word == other else max(row[j], row[j - 1])
    return row[-1]
