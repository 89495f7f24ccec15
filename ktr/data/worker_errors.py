"""Errors of data loader workers, carried to the main process as they are.

Torch raises a worker's error again as a `RuntimeError` with the worker's traceback for text, out of which nobody can
read which row it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import get_worker_info


@dataclass(frozen=True)
class WorkerError:
    """What stands in for a batch that could not be made."""

    error: ValueError


class CarriesErrors:
    """A collator that gives a `WorkerError` in place of raising, where it runs in a worker."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, examples: Any) -> Any:
        try:
            return self.collate(examples)
        except ValueError as error:
            if get_worker_info() is None:
                raise
            return WorkerError(error)


def batches_or_raise(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, raising the error of the first that is none."""
    for batch in batches:
        if isinstance(batch, WorkerError):
            raise batch.error
        yield batch
