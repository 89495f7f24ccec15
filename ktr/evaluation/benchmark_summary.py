"""What a benchmark's records say, as plain JSON values: figures, categories, failures, views, samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ktr.evaluation.metrics import CategoryScore, accuracy, by_category, by_facet, counts, paired_difference
from ktr.evaluation.official import GROUPING_FACETS, official_figures
from ktr.evaluation.records import Record
from ktr.evaluation.samples import sampled_figures

# What a view takes away, so what `full` minus it measures.
SHOWS = {"no_video": "vision", "shuffled": "order", "one_frame": "motion"}


def benchmark_summary(
    views: Mapping[str, Sequence[Record]],
    *,
    metric: str = "accuracy",
    settings: Mapping[str, Any] | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Any]:
    """The summary of one benchmark from all its records.

    Keys: `headline` (the official figure's name), `figures`, `accuracy` (over all rows), `samples` (how many ended
    how), `by_kind` and `by_facet` (each with accuracy and counts), `sampled` (pass@k, majority vote), `views` (the same
    figures under every view), `differences` (paired: what `full` has over a view), `settings`.

    Raises ValueError for no records.
    """
    main = "full" if views.get("full") else next(iter(views))
    records = views[main]
    options = {"resamples": resamples, "seed": seed}
    figures = official_figures(metric, records, **options)
    kinds = by_category(records, **options)
    return {
        "view": main,
        "headline": figures[0].name,
        "figures": {figure.name: asdict(figure) for figure in figures},
        "accuracy": accuracy(records, **options).to_dict(),
        "samples": sample_counts(records),
        "by_kind": _scores(kinds) if len(kinds) > 1 else {},
        "by_facet": {facet: _scores(by_facet(records, facet, **options)) for facet in _facets(records)},
        "sampled": {name: interval.to_dict() for name, interval in sampled_figures(records, **options).items()},
        "views": {
            view: {
                "figures": {figure.name: asdict(figure) for figure in official_figures(metric, own, **options)},
                "accuracy": accuracy(own, **options).to_dict(),
                "samples": sample_counts(own),
            }
            for view, own in views.items()
        },
        "differences": {
            shows: {"view": view, **paired_difference(views["full"], views[view], **options).to_dict()}
            for view, shows in SHOWS.items()
            if views.get("full") and views.get(view)
        },
        "settings": dict(settings or {}),
    }


def sample_counts(records: Sequence[Record]) -> dict[str, Any]:
    """How many samples ended how, the share that was answered, and the mean length in tokens."""
    found = counts(records)
    mean_tokens = sum(record.num_tokens for record in records) / len(records)
    return {**asdict(found), "answered_share": found.answered_share, "mean_tokens": mean_tokens}


def _facets(records: Sequence[Record]) -> list[str]:
    """The facets that split the rows otherwise than their categories do."""
    names = sorted({name for record in records for name in record.facets} - set(GROUPING_FACETS))
    return [name for name in names if any(record.facets.get(name) != record.category for record in records)]


def _scores(scores: Mapping[str, CategoryScore]) -> dict[str, dict[str, Any]]:
    return {
        name: {"accuracy": score.accuracy.to_dict(), "rows": score.counts.rows, "answered": score.counts.answered}
        for name, score in scores.items()
    }
