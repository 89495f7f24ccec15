"""Errors of data loader workers, carried to the main process as they are.

Torch raises a worker's error again as a `RuntimeError` with the worker's traceback for text, out of which nobody can
read which row it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ParamSpec

from torch.utils.data import get_worker_info

P = ParamSpec("P")


@dataclass(frozen=True)
class WorkerError:
    """What stands in for a batch that could not be made."""

    error: ValueError


def carries_errors(collate: Callable[P, Any]) -> Callable[P, Any]:
    """Decorates a collator (its function or `__call__`): in a worker, it gives a `WorkerError` in place of raising."""

    @functools.wraps(collate)
    def carrying(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return collate(*args, **kwargs)
        except ValueError as error:
            if get_worker_info() is None:
                raise
            return WorkerError(error)

    return carrying


def batches_or_raise(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, raising the error of the first that is none."""
    for batch in batches:
        if isinstance(batch, WorkerError):
            raise batch.error
        yield batch
