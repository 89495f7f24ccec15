"""Which rows a run uses: filters, subsets by seed, and mixes of several sources by weight. Order and draw are fixed."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ktr.data.rows import Row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keep:
    """Rows that stay. Empty tuples and None keep all; seconds are those of the whole video."""

    modality: tuple[str, ...] = ()
    problem_type: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    min_seconds: float | None = None
    max_seconds: float | None = None

    @property
    def by_length(self) -> bool:
        return self.min_seconds is not None or self.max_seconds is not None

    def __call__(self, row: Row) -> bool:
        for allowed, value in (
            (self.modality, row.modality),
            (self.problem_type, row.problem_type),
            (self.source, row.source),
        ):
            if allowed and value not in allowed:
                return False
        if not self.by_length or row.modality != "video":
            return True
        if row.duration is None:
            raise ValueError(
                f"row {row.id!r} does not state how long its video is, so data.keep cannot filter by seconds; use "
                "verified.jsonl of `prepare.py job=doctor`, which measures it"
            )
        return (self.min_seconds or 0.0) <= row.duration <= (self.max_seconds or float("inf"))


def keep_rows(rows: Sequence[Row], keep: Keep, source: object) -> list[Row]:
    """The rows that `keep` lets through; what it takes out is logged.

    Raises:
        ValueError: none is left, or a video's length is wanted and not known.
    """
    kept = [row for row in rows if keep(row)]
    if len(kept) < len(rows):
        logger.info("%s: data.keep keeps %d of %d rows", source, len(kept), len(rows))
    if rows and not kept:
        raise ValueError(f"{source}: data.keep lets none of {len(rows)} rows through: {keep}")
    return kept


def draw_subset(rows: Sequence[Row], size: int | None, seed: int) -> list[Row]:
    """`size` rows drawn by `seed`, in their old order; all where there are no more. Larger draws hold smaller ones."""
    if size is None or size >= len(rows):
        return list(rows)
    order = list(range(len(rows)))
    random.Random(f"subset/{seed}").shuffle(order)
    return [rows[index] for index in sorted(order[:size])]


def mix_rows(
    sources: Sequence[tuple[str, Sequence[Row], float | None]], total: int | None = None, *, seed: int = 0
) -> list[Row]:
    """Rows of several sources, in shares given by their weights, spread evenly over the mix.

    Args:
        sources: name, rows and weight of each; weights that are None take all rows.
        total: rows of the mix; None is as many as repeats no row.

    Raises:
        ValueError: an empty source, or ids that two sources share.
    """
    _check_ids(sources)
    if all(weight is None for _, _, weight in sources):
        return [row for _, rows, _ in sources for row in rows]
    weights = [weight or 0.0 for _, _, weight in sources]
    counts = shares(weights, [len(rows) for _, rows, _ in sources], total)
    placed: list[tuple[float, int, Row]] = []
    for number, ((name, rows, _), count) in enumerate(zip(sources, counts, strict=True)):
        if count > len(rows):
            logger.warning("data.mix: %d rows of %s fill %d places, so they repeat", len(rows), name, count)
        chosen: list[Row] = []
        while len(chosen) < count:
            order = list(rows)
            random.Random(f"mix/{seed}/{name}/{len(chosen)}").shuffle(order)
            chosen += order[: count - len(chosen)]
        placed += [((place + 0.5) / count, number, row) for place, row in enumerate(chosen)]
    logger.info("data.mix: %s", ", ".join(f"{n} {count}" for (n, _, _), count in zip(sources, counts, strict=True)))
    return [row for _, _, row in sorted(placed, key=lambda item: item[:2])]


def shares(weights: Sequence[float], sizes: Sequence[int], total: int | None) -> list[int]:
    """Rows of each source: in proportion to `weights`, largest remainders first, `total` in all.

    Example: weights 3 and 1 over 90 and 1000 rows give 90 and 30.
    """
    fractions = [weight / sum(weights) for weight in weights]
    if total is None:
        total = int(min(size / fraction for size, fraction in zip(sizes, fractions, strict=True)) + 1e-9)
    exact = [fraction * total for fraction in fractions]
    counts = [int(count + 1e-9) for count in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _check_ids(sources: Sequence[tuple[str, Sequence[Row], float | None]]) -> None:
    owner: dict[str, str] = {}
    for name, rows, _ in sources:
        if not rows:
            raise ValueError(f"data.mix: {name} holds no rows")
        for row_id in dict.fromkeys(row.id for row in rows):
            if row_id in owner:
                raise ValueError(
                    f"data.mix: {owner[row_id]} and {name} both have a row {row_id!r}; give their rows ids that differ"
                )
            owner[row_id] = name
