"""Several samples of a row: pass@k and the majority vote, beside the mean that `accuracy` gives.

A sample is right when it scores 1. Rows with n samples of which c are right have pass@k = 1 - C(n-c, k) / C(n, k)
(unbiased: Chen et al. 2021, arXiv 2107.03374, equation 1). The vote goes to the parsed answer that most samples share,
a tie to the earlier one, and counts what that answer's first sample scored (self-consistency: arXiv 2203.11171);
samples without an answer do not vote.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import comb

from ktr.evaluation.metrics import Interval, bootstrap_interval
from ktr.evaluation.records import Record


def pass_at_k(records: Sequence[Record], k: int) -> dict[str, float]:
    """The chance, by row, that one of k samples is right. Raises ValueError where a row has fewer samples than k."""
    values = {}
    for row_id, own in _by_row(records).items():
        if not 1 <= k <= len(own):
            raise ValueError(f"pass@{k} needs at least {k} samples a row, and row {row_id!r} has {len(own)}")
        wrong = sum(record.accuracy != 1.0 for record in own)
        values[row_id] = 1.0 - comb(wrong, k) / comb(len(own), k)
    return values


def majority_vote(records: Sequence[Record]) -> dict[str, float]:
    """The score, by row, of the answer most samples gave; 0 where none gave one."""
    values = {}
    for row_id, own in _by_row(records).items():
        votes = Counter(record.parsed for record in own if record.parsed is not None and record.answered)
        winner = votes.most_common(1)[0][0] if votes else None  # Equal counts keep the order they were met in.
        chosen = next((record for record in own if votes and record.parsed == winner), None)
        values[row_id] = (chosen.accuracy or 0.0) if chosen is not None else 0.0
    return values


def sampled_figures(records: Sequence[Record], *, resamples: int = 2000, seed: int = 0) -> dict[str, Interval]:
    """pass@k for k = 1, 2, 4, ... up to the samples of a row, and `majority vote`; empty for one sample a row."""
    count = min((len(own) for own in _by_row(records).values()), default=0)
    if count < 2:
        return {}
    ks = [2**power for power in range(count.bit_length()) if 2**power <= count]
    ks = ks if ks[-1] == count else [*ks, count]
    values = {f"pass@{k}": pass_at_k(records, k) for k in ks} | {"majority vote": majority_vote(records)}
    return {
        name: bootstrap_interval(list(own.values()), resamples=resamples, seed=seed) for name, own in values.items()
    }


def _by_row(records: Sequence[Record]) -> dict[str, list[Record]]:
    rows: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.sample):
        rows[record.id].append(record)
    return rows
