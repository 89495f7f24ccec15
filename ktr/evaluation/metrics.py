"""Metrics over evaluation records, with bootstrap intervals.

Accuracy is over ALL rows: unreadable media, truncation and missing answers count 0, as does an open answer that no
judge has scored; each has its own count in `Counts`. Several samples of a row are averaged first, so that the row is
what the bootstrap draws (percentile bootstrap: Efron & Tibshirani 1993, chapter 13).

Legend: S rows, B bootstrap resamples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from ktr.evaluation.records import MEDIA_ERROR, TRUNCATED, Record

FloatArray = NDArray[np.float64]
DRAWS_AT_ONCE = 4_000_000  # bounds the index array of the bootstrap to 32 MB


@dataclass(frozen=True)
class Interval:
    """A mean with its lower and upper bound."""

    mean: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Counts:
    """How many samples ended how; `judged` ones were scored by a judge, `unjudged` ones need one that was absent."""

    rows: int
    samples: int
    answered: int
    no_answer: int
    truncated: int
    media_error: int
    prompt_too_long: int
    no_reply: int
    unjudged: int
    judged: int
    view_unchanged: int

    @property
    def answered_share(self) -> float:
        return self.answered / self.samples if self.samples else 0.0


def counts(records: Sequence[Record]) -> Counts:
    return Counts(
        rows=len({record.id for record in records}),
        samples=len(records),
        answered=sum(record.answered for record in records),
        no_answer=sum(record.status in ("no_answer", "unparsable", "ambiguous") for record in records),
        truncated=sum(record.truncated or record.status == TRUNCATED for record in records),
        media_error=sum(record.status == MEDIA_ERROR for record in records),
        prompt_too_long=sum(record.status == "prompt_too_long" for record in records),
        no_reply=sum(record.status == "no_reply" for record in records),
        judged=sum(record.scored_by == "judge" for record in records),
        unjudged=sum(record.accuracy is None for record in records),
        view_unchanged=sum(not record.view_changed for record in records),
    )


def row_scores(records: Sequence[Record]) -> dict[str, float]:
    """Mean accuracy of each row over its samples, by row id in the order met.

    Raises ValueError when the records are of more than one view, or hold a sample twice.
    """
    views = sorted({record.view for record in records})
    if len(views) > 1:
        raise ValueError(f"records of several views {views} cannot share one accuracy; select one view first")
    if len({record.key for record in records}) < len(records):
        raise ValueError("the records hold a sample twice; evaluate again into a new file")
    scores: dict[str, list[float]] = defaultdict(list)
    for record in records:
        scores[record.id].append(record.accuracy or 0.0)
    return {row_id: sum(values) / len(values) for row_id, values in scores.items()}


def bootstrap_interval(
    values_S: Sequence[float] | FloatArray, *, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Mean and percentile bootstrap interval. Raises ValueError for no values or a level outside (0, 1)."""
    data_S = np.asarray(values_S, dtype=np.float64)
    if data_S.size == 0:
        raise ValueError("no rows to measure: the record set is empty")
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"need 0 < level < 1 and resamples >= 1, got level={level}, resamples={resamples}")
    means_B = resampled_means(data_S, resamples, np.random.default_rng(seed))
    low, high = np.quantile(means_B, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(data_S.mean()), float(low), float(high))


def resampled_means(data_S: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Means `(B,)` of as many draws of S rows with replacement."""
    means_B = np.empty(resamples)
    block = max(1, DRAWS_AT_ONCE // data_S.size)
    for start in range(0, resamples, block):
        stop = min(start + block, resamples)
        draws_BS = rng.integers(data_S.size, size=(stop - start, data_S.size), dtype=np.int32)
        means_B[start:stop] = data_S[draws_BS].mean(axis=1)
    return means_B


def accuracy(records: Sequence[Record], *, resamples: int = 2000, seed: int = 0) -> Interval:
    """Accuracy over all rows with its 95 % interval."""
    return bootstrap_interval(list(row_scores(records).values()), resamples=resamples, seed=seed)


def paired_difference(
    after: Sequence[Record], before: Sequence[Record], *, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Mean of `after - before` over the same rows, with the 95 % interval of the paired bootstrap.

    Raises ValueError naming some of the rows when the two sets are not about the same ids.
    """
    scores_after, scores_before = row_scores(after), row_scores(before)
    unpaired = sorted(scores_after.keys() ^ scores_before.keys())
    if unpaired:
        raise ValueError(
            f"a paired comparison needs the same rows on both sides; {len(unpaired)} are on one side only, "
            f"such as {unpaired[:3]}"
        )
    differences = [score - scores_before[row_id] for row_id, score in scores_after.items()]
    return bootstrap_interval(differences, resamples=resamples, seed=seed)


@dataclass(frozen=True)
class CategoryScore:
    """Accuracy of one question kind over all its rows."""

    category: str
    accuracy: Interval
    counts: Counts


def by_category(records: Sequence[Record], *, resamples: int = 2000, seed: int = 0) -> dict[str, CategoryScore]:
    """Accuracy per category (the problem type where a row names no category), sorted by name."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.category or record.problem_type].append(record)
    return {
        name: CategoryScore(name, accuracy(groups[name], resamples=resamples, seed=seed), counts(groups[name]))
        for name in sorted(groups)
    }


def by_facet(
    records: Sequence[Record], facet: str, *, resamples: int = 2000, seed: int = 0
) -> dict[str, CategoryScore]:
    """Accuracy by the values of a facet, sorted by name; rows without it are left out."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if value := record.facets.get(facet):
            groups[value].append(record)
    return {
        name: CategoryScore(name, accuracy(groups[name], resamples=resamples, seed=seed), counts(groups[name]))
        for name in sorted(groups)
    }


@dataclass(frozen=True)
class CeilingCheck:
    """An accuracy against the best one reachable without some input; `above` when the whole interval is higher."""

    accuracy: Interval
    ceiling: float
    above: bool


def against_ceiling(
    records: Sequence[Record], ceilings: Mapping[str, float], *, resamples: int = 2000, seed: int = 0
) -> dict[str, CeilingCheck]:
    """Compare each category that has a ceiling, for example the best accuracy an order-blind reader can have.

    Raises ValueError for a ceiling outside [0, 1]. Categories without records are left out.
    """
    impossible = {name: value for name, value in ceilings.items() if not 0 <= value <= 1}
    if impossible:
        raise ValueError(f"ceilings are accuracies in [0, 1], got {impossible}")
    scores = by_category(records, resamples=resamples, seed=seed)
    return {
        name: CeilingCheck(scores[name].accuracy, ceiling, scores[name].accuracy.low > ceiling)
        for name, ceiling in ceilings.items()
        if name in scores
    }
