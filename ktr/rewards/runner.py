"""Running weighted reward components on a batch, with whatever goes wrong kept visible."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ktr.rewards.groups import group_members
from ktr.rewards.signatures import RewardFunction, check_columns

logger = logging.getLogger(__name__)

_KEPT_ERRORS = 100


class RewardFailure(RuntimeError):
    """More rewards raised than the run allows.

    `errors` are those of the batch that was one too many; `lines` what a run's `reward_errors.jsonl` says of them.
    """

    def __init__(self, message: str, errors: Sequence[RewardError] = (), lines: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.errors, self.lines = list(errors), list(lines)


@dataclass(frozen=True)
class RewardError:
    """One row on which a component raised, so that it abstained; `trace` says where."""

    component: str
    position: int
    row_id: str
    message: str
    trace: str = field(default="", compare=False)


@dataclass(frozen=True)
class RewardTable:
    """A batch's rewards: weighted totals (None where every component abstained) and each component's own scores."""

    total: list[float | None]
    by_component: dict[str, list[float | None]]
    errors: list[RewardError] = field(default_factory=list)

    @property
    def abstained(self) -> dict[str, int]:
        """How many rows each component gave no score for."""
        return {name: scores.count(None) for name, scores in self.by_component.items()}

    @property
    def dropped(self) -> int:
        """How many rows have no reward at all, and so stay out of the baseline."""
        return self.total.count(None)

    def means_by(self, keys: Sequence[str]) -> dict[str, dict[str, float]]:
        """Mean score per component and key (a problem type or modality per row), abstentions left out."""
        means: dict[str, dict[str, float]] = {}
        for name, scores in self.by_component.items():
            known: dict[str, list[float]] = {}
            for key, score in zip(keys, scores, strict=True):
                if score is not None:
                    known.setdefault(key, []).append(score)
            means[name] = {key: sum(values) / len(values) for key, values in known.items()}
        return means


class RewardRunner:
    """Scores batches with named, weighted components.

    A component that raises abstains on the rows it raises for, each recorded; after more than `max_error_share` of all
    scores (once `min_scores` were asked for, or at once when a whole batch fails) the run stops with RewardFailure.
    Scores of earlier components reach later ones as the column `<name>_reward`.

    >>> RewardRunner({"length": (lambda completions, **_: [float(len(c)) for c in completions], 0.5)}).score(
    ...     ["q"], ["four"]).total
    [2.0]
    """

    def __init__(
        self,
        components: Mapping[str, tuple[RewardFunction, float]],
        max_error_share: float = 0.05,
        min_scores: int = 100,
    ) -> None:
        if not components:
            raise ValueError("a reward needs at least one component")
        if not 0.0 <= max_error_share <= 1.0:
            raise ValueError(f"max_error_share must lie in [0, 1], not {max_error_share}")
        for name, (function, _) in components.items():
            if not callable(function):
                raise ValueError(f"the reward component {name!r} is no function: {function!r}")
        self.components = dict(components)
        self.max_error_share = max_error_share
        self.min_scores = min_scores
        self.counts: Counter[str] = Counter()
        self.errors: list[RewardError] = []

    def check_columns(self, columns: Iterable[str]) -> None:
        """Raise ValueError when a component needs a column the data lacks; for use before a model is loaded."""
        known = {*columns, *(f"{name}_reward" for name in self.components)}
        for name, (function, _) in self.components.items():
            check_columns(function, known, name)

    def score(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> RewardTable:
        """The rewards of a batch; every list column is aligned with `completions`."""
        by_component: dict[str, list[float | None]] = {}
        errors: list[RewardError] = []
        for name, (function, _) in self.components.items():
            earlier = {f"{done}_reward": scores for done, scores in by_component.items()}
            by_component[name] = self._run(name, function, prompts, completions, {**columns, **earlier}, errors)
        total = [
            self._weighted({name: by_component[name][i] for name in by_component}) for i in range(len(completions))
        ]
        table = RewardTable(total, by_component, errors)
        self._count(table)
        return table

    def _weighted(self, scores: Mapping[str, float | None]) -> float | None:
        known = [self.components[name][1] * score for name, score in scores.items() if score is not None]
        return sum(known) if known else None

    def _run(
        self,
        name: str,
        function: RewardFunction,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        columns: dict[str, Any],
        errors: list[RewardError],
    ) -> list[float | None]:
        """The component's scores; on an error each group, or each row of a row-wise component, is tried alone."""
        try:
            return _call(function, prompts, completions, columns)
        except Exception as error:  # a reward is the user's code: any failure is recorded, counted and bounded
            logger.warning("reward %s raised %s: %s; scoring its rows apart", name, type(error).__name__, error)
        scores: list[float | None] = [None] * len(completions)
        rowwise = getattr(function, "rowwise", False)
        parts = (
            [[i] for i in range(len(completions))]
            if rowwise
            else group_members(prompts, columns.get("group"), columns.get("id"))
        )
        for part in parts:
            try:
                values = _call(
                    function,
                    [prompts[i] for i in part],
                    [completions[i] for i in part],
                    _take(columns, part, len(completions)),
                )
            except Exception as error:  # as above
                message, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
                errors += [RewardError(name, i, str(_at(columns.get("id"), i)), message, trace) for i in part]
                continue
            for i, value in zip(part, values, strict=True):
                scores[i] = value
        return scores

    def _count(self, table: RewardTable) -> None:
        rows = len(table.total)
        scores = rows * len(self.components)
        self.counts.update(rows=rows, scores=scores, errors=len(table.errors), dropped=table.dropped)
        self.counts.update({f"abstained/{name}": count for name, count in table.abstained.items()})
        self.errors += table.errors[: max(0, _KEPT_ERRORS - len(self.errors))]
        share = self.counts["errors"] / max(1, self.counts["scores"])
        component_failed = any(
            sum(error.component == name for error in table.errors) == rows for name in self.components if rows
        )
        if share > self.max_error_share and (self.counts["scores"] >= self.min_scores or component_failed):
            first = table.errors[0] if table.errors else self.errors[0]
            raise RewardFailure(
                f"{self.counts['errors']} of {self.counts['scores']} rewards raised ({share:.0%}, at most "
                f"{self.max_error_share:.0%} allowed); for example {first.component} on row {first.row_id}: "
                f"{first.message}",
                table.errors,
            )


def _call(
    function: RewardFunction, prompts: Sequence[Any], completions: Sequence[Any], columns: dict[str, Any]
) -> list[float | None]:
    arguments = {"prompts": prompts, "completions": completions, **columns}
    parameters = inspect.signature(function).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        arguments = {name: value for name, value in arguments.items() if name in parameters}
    scores = list(function(**arguments))
    if len(scores) != len(completions):
        raise ValueError(f"a reward gave {len(scores)} scores for {len(completions)} completions")
    return [None if score is None else _finite(score) for score in scores]


def _finite(score: Any) -> float:
    value = float(score)
    if not abs(value) < float("inf"):
        raise ValueError(f"a reward gave the score {value}; rewards are finite numbers, or None to abstain")
    return value


def _take(columns: Mapping[str, Any], rows: Sequence[int], count: int) -> dict[str, Any]:
    aligned = (list, tuple)
    return {
        name: [value[i] for i in rows] if isinstance(value, aligned) and len(value) == count else value
        for name, value in columns.items()
    }


def _at(column: Sequence[Any] | None, position: int) -> Any:
    return position if column is None else column[position]
