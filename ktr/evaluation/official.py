"""The figures that benchmarks publish, each with a bootstrap interval; the first of a metric is its headline.

A figure is a weighted mean of means: rows lie in strata (tasks), each stratum's mean has a weight. Accuracy has one
stratum; a mean of tasks has one for each task. The bootstrap draws rows within their stratum. Samples of a row are
averaged first; rows without an answer count 0 unless a figure says otherwise.

Legend: S rows of a stratum, B bootstrap resamples.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ktr.evaluation.metrics import Counts, FloatArray, Interval, counts, resampled_means, row_scores
from ktr.evaluation.records import Record
from ktr.rewards.grounding import Box, box_iou, interval_iou, read_boxes, read_interval
from ktr.rewards.numbers import read_numbers
from ktr.rewards.reply import read_reply
from ktr.rewards.scoring import bare_gold

RowValues = dict[str, float]
# OVO-Bench (2501.05510, table 2) names its tasks by three modes.
OVO_FORWARD = ("REC", "SSR", "CRR")
# Facets that say which rows belong together; there is no table by them.
QUESTION_ID, PAIRING = GROUPING_FACETS = ("question_id", "pairing")


@dataclass(frozen=True)
class Figure:
    """One published number. `share` figures lie in [0, 1] and are shown as percentages; others are plain numbers.

    `rows` is how many values it is the mean of (questions, for the multi-binary accuracy), `counts` how the samples
    behind them ended.
    """

    name: str
    interval: Interval
    rows: int
    counts: Counts
    share: bool = True


def official_figures(metric: str, records: Sequence[Record], *, resamples: int = 2000, seed: int = 0) -> list[Figure]:
    """The figures of a metric named in `METRICS`, over the records of one view.

    Raises ValueError for an unknown metric and for no records.
    """
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; known: {', '.join(METRICS)}")
    if not records:
        raise ValueError("no rows to measure: the record set is empty")
    draw = _Bootstrap(records, resamples, seed)
    return [figure for figure in METRICS[metric](records, draw) if figure is not None]


@dataclass(frozen=True)
class _Bootstrap:
    records: Sequence[Record]
    resamples: int
    seed: int

    def figure(
        self,
        name: str,
        values: Mapping[str, float],
        *,
        strata: Mapping[str, str] | None = None,
        weights: Mapping[str, float] | None = None,
        share: bool = True,
        transform: Callable[[FloatArray], FloatArray] | None = None,
        about: Sequence[Record] | None = None,
    ) -> Figure | None:
        """None without rows. Weights default to the same for every stratum; they are scaled to sum to 1.

        `about` are the records behind `values`, by default those of its row ids.
        """
        groups: dict[str, list[float]] = defaultdict(list)
        for row_id, value in values.items():
            groups[strata[row_id] if strata is not None else ""].append(value)
        if not groups:
            return None
        weighed = {name: (weights or {}).get(name, 1.0) for name in groups}
        total = sum(weighed.values())
        rng = np.random.default_rng(self.seed)
        mean, means_B = 0.0, np.zeros(self.resamples)
        for stratum in sorted(groups):
            data_S = np.asarray(groups[stratum], dtype=np.float64)
            weight = weighed[stratum] / total
            mean += weight * float(data_S.mean())
            means_B += weight * resampled_means(data_S, self.resamples, rng)
        low, high = np.quantile(means_B, [0.025, 0.975])
        bounds = np.array([mean, low, high])
        if transform is not None:
            bounds = transform(bounds)
        own = [record for record in self.records if record.id in values] if about is None else about
        return Figure(name, Interval(*map(float, bounds)), len(values), counts(own), share)


Figures = list[Figure | None]


def _accuracy(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    return [draw.figure("accuracy", row_scores(records))]


def _category_mean(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    """The mean over tasks, as MVBench (2311.17005) and MLVU (2406.04264, M-Avg) report it, beside plain accuracy."""
    scores, tasks = row_scores(records), {record.id: task_of(record) for record in records}
    return [draw.figure("mean of tasks", scores, strata=tasks), draw.figure("accuracy", scores)]


def _vsi_bench(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    """VSI-Bench (2412.14171, section 3): the mean of eight tasks, the three grades of direction being one."""
    scores = row_scores(records)
    tasks = {record.id: task_of(record) for record in records}
    directions = {task for task in tasks.values() if task.startswith("object_rel_direction")}
    weights = {task: 1.0 / len(directions) for task in directions}
    chosen = {record.id for record in records if record.problem_type == "multiple choice"}
    return [
        draw.figure("mean of tasks", scores, strata=tasks, weights=weights),
        draw.figure("multiple choice accuracy", {name: score for name, score in scores.items() if name in chosen}),
        draw.figure("mean relative accuracy", {name: score for name, score in scores.items() if name not in chosen}),
    ]


def _ovo_bench(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    """OVO-Bench (2501.05510, section 4): the mean of three modes, each the mean of its tasks."""
    scores = row_scores(records)
    tasks = {record.id: task_of(record) for record in records}
    modes: dict[str, set[str]] = defaultdict(set)
    mode_of = {record.id: _ovo_mode(record) for record in records}
    for row_id, task in tasks.items():
        modes[mode_of[row_id]].add(task)
    weights = {task: 1.0 / len(names) for names in modes.values() for task in names}
    figures = [draw.figure("mean of modes", scores, strata=tasks, weights=weights)]
    for mode in sorted(modes):
        own = {row_id: score for row_id, score in scores.items() if mode_of[row_id] == mode}
        figures.append(draw.figure(mode, own, strata=tasks))
    return figures


def _ovo_mode(record: Record) -> str:
    return record.facets.get("category") or ("forward" if task_of(record) in OVO_FORWARD else "backward and realtime")


def _temporal_grounding(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    """Mean IoU, and recall at IoU 0.3, 0.5 and 0.7 (Charades-STA: 1705.02101, section 5)."""
    overlaps = _values(records, lambda record: record.accuracy or 0.0)
    return [
        draw.figure("mIoU", _row_means(overlaps)),
        *(draw.figure(f"R@{level}", _row_means(_at_least(overlaps, level))) for level in (0.3, 0.5, 0.7)),
    ]


def _spatio_temporal_grounding(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    """m_tIoU, m_vIoU and recall at vIoU 0.3 and 0.5 (VidSTG: 2001.06891, section 5.1), boxes at whole seconds."""
    overlaps = [(record.id, *_spatio_temporal_overlaps(record)) for record in records]
    times = [(row_id, time) for row_id, time, _ in overlaps]
    volumes = [(row_id, volume) for row_id, _, volume in overlaps]
    return [
        draw.figure("m_vIoU", _row_means(volumes)),
        draw.figure("m_tIoU", _row_means(times)),
        *(draw.figure(f"vIoU@{level}", _row_means(_at_least(volumes, level))) for level in (0.3, 0.5)),
    ]


def _counting(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    """Accuracy, off-by-one accuracy, and over answered rows mean absolute and root mean squared error (2506.05328)."""
    errors: list[tuple[str, float]] = []
    near: list[tuple[str, float]] = []
    for record in records:
        gold, given = read_numbers(record.gold).single(), read_numbers(record.parsed or "").single()
        answered = record.status == "ok" and gold is not None and given is not None
        error = abs(given.value - gold.value) if answered and gold is not None and given is not None else math.inf
        near.append((record.id, float(error <= 1.0)))
        if answered:
            errors.append((record.id, error))
    squared = [(row_id, error**2) for row_id, error in errors]
    return [
        draw.figure("accuracy", row_scores(records)),
        draw.figure("off by at most one", _row_means(near)),
        draw.figure("mean absolute error", _row_means(errors), share=False),
        draw.figure("root mean squared error", _row_means(squared), share=False, transform=np.sqrt),
    ]


def _multi_binary(records: Sequence[Record], draw: _Bootstrap) -> Figures:
    """VideoMathQA (2506.05349, section 4): a question is right when the gold option wins every pairing with another.

    Rows with the facet `pairing` are such pairs, those of one `question_id` belong together; the others are ordinary
    multiple choice. Samples of a row are averaged after each of them was judged over all pairs.
    """
    pairs: dict[tuple[str, int], bool] = defaultdict(lambda: True)
    single = {record.id for record in records if PAIRING not in record.facets}
    for record in records:
        if record.id not in single:
            pairs[record.facets.get(QUESTION_ID, record.id), record.sample] &= record.accuracy == 1.0
    scores = row_scores(records)
    questions = _row_means([(name, float(right)) for (name, _), right in pairs.items()])
    paired = [record for record in records if record.id not in single]
    return [
        draw.figure("multi-binary accuracy", questions, about=paired),
        draw.figure("multiple choice accuracy", {name: score for name, score in scores.items() if name in single}),
        draw.figure("accuracy", scores),
    ]


METRICS: dict[str, Callable[[Sequence[Record], _Bootstrap], Figures]] = {
    "accuracy": _accuracy,
    "category_mean": _category_mean,
    "vsi_bench": _vsi_bench,
    "ovo_bench": _ovo_bench,
    "temporal_grounding": _temporal_grounding,
    "spatio_temporal_grounding": _spatio_temporal_grounding,
    "counting": _counting,
    "multi_binary": _multi_binary,
}


def task_of(record: Record) -> str:
    """The task a row belongs to: its facet `task`, else its category, else its problem type."""
    return record.facets.get("task") or record.category or record.problem_type


def _values(records: Sequence[Record], value: Callable[[Record], float]) -> list[tuple[str, float]]:
    return [(record.id, value(record)) for record in records]


def _at_least(values: Sequence[tuple[str, float]], level: float) -> list[tuple[str, float]]:
    return [(row_id, float(value >= level)) for row_id, value in values]


def _row_means(values: Sequence[tuple[str, float]]) -> RowValues:
    """The mean over the samples of each row."""
    rows: dict[str, list[float]] = defaultdict(list)
    for row_id, value in values:
        rows[row_id].append(value)
    return {row_id: sum(own) / len(own) for row_id, own in rows.items()}


def _spatio_temporal_overlaps(record: Record) -> tuple[float, float]:
    """Temporal IoU, and volume IoU: box overlaps summed over the seconds of either, over their number."""
    gold = bare_gold(record.gold)
    wanted_time, wanted = read_interval(gold), read_boxes(gold) or {}
    answer = read_reply(record.reply, require_tags=False).answer or ""
    given_time, given = read_interval(answer, json_only=True), read_boxes(answer) or {}
    time = interval_iou(given_time, wanted_time) if given_time is not None and wanted_time is not None else 0.0
    if record.status not in ("ok", "abstained"):
        return 0.0, 0.0
    seconds = wanted.keys() | given.keys()
    volume = math.fsum(_overlap(given.get(second), wanted.get(second)) for second in seconds)
    return time, volume / len(seconds) if seconds else 0.0


def _overlap(given: Box | None, wanted: Box | None) -> float:
    return box_iou(given, wanted) if given is not None and wanted is not None else 0.0
