"""The order in which training reads rows: shuffled by seed, the same on every rank, whole groups, unreadable rows out.

With a `readable` test, each index is tried before it is yielded and the next index of the order takes the place of an
unreadable one. Every rank iterates the whole order and tests the same files, so all ranks skip the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.data import Sampler

from ktr.data.media import MediaError
from ktr.data.rows import Row

logger = logging.getLogger(__name__)


class RowSampler(Sampler[int]):
    """Indices of rows, epoch after epoch in another order.

    Args:
        num_rows: rows to order.
        seed: of the order.
        batch_rows: rows of one generation batch over all ranks. An epoch's incomplete last batch is left out; where the
            rows are fewer than one batch, or some cannot be read, they are shuffled again to fill all batches.
        group_size: times each row is repeated in a row (the completions of its group); 1 for supervised training.
        passes: times each batch is yielded (updates or accumulation passes that reuse it).
        readable: whether a row can be used; None uses all.

    Raises:
        ValueError: no row at all, from the start or after skipping.
    """

    def __init__(
        self,
        num_rows: int,
        *,
        seed: int,
        batch_rows: int = 1,
        group_size: int = 1,
        passes: int = 1,
        readable: Callable[[int], bool] | None = None,
    ) -> None:
        if num_rows < 1:
            raise ValueError("there are no rows to train on")
        if num_rows < batch_rows:
            logger.warning("%d rows are fewer than the %d of one step: rows repeat within a step", num_rows, batch_rows)
        self.num_rows = num_rows
        self.seed = seed
        self.batch_rows = batch_rows
        self.group_size = group_size
        self.passes = passes
        self.readable = readable
        self.epoch = 0

    def __len__(self) -> int:
        return self.num_batches * self.batch_rows * self.group_size * self.passes

    @property
    def num_batches(self) -> int:
        """Distinct batches of an epoch."""
        return max(1, self.num_rows // self.batch_rows)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed((self.seed << 20) + self.epoch)
        self.epoch += 1
        batch: list[int] = []
        missing = self.num_batches
        while missing:
            num_read = 0
            for index in torch.randperm(self.num_rows, generator=generator).tolist():
                if self.readable is not None and not self.readable(index):
                    continue
                num_read += 1
                batch.append(index)
                if len(batch) == self.batch_rows:
                    yield from self._repeated(batch)
                    batch = []
                    missing -= 1
                    if not missing:
                        break
            if num_read == 0:
                raise ValueError(
                    f"none of {self.num_rows} rows can be read, so not one step can be taken: see skipped.jsonl in the "
                    "run folder"
                )

    def _repeated(self, batch: list[int]) -> Iterator[int]:
        for _ in range(self.passes):
            for index in batch:
                yield from [index] * self.group_size


class ReadableRows:
    """Tests rows by reading their media once; unreadable ones are remembered with the reason.

    Args:
        rows: all rows of the stage.
        load: reads a row's media, raising `MediaError`; its cache serves the step that follows.
        on_skip: told about each skipped row, once.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        load: Callable[[Row], object],
        on_skip: Callable[[Row, MediaError], None] | None = None,
    ) -> None:
        self.rows = rows
        self.load = load
        self.on_skip = on_skip
        self.verdicts: dict[int, bool] = {}

    def __call__(self, index: int) -> bool:
        if index not in self.verdicts:
            try:
                self.load(self.rows[index])
                self.verdicts[index] = True
            except MediaError as error:
                self.verdicts[index] = False
                logger.warning("row %r is skipped: %s", self.rows[index].id, error)
                if self.on_skip is not None:
                    self.on_skip(self.rows[index], error)
        return self.verdicts[index]

    @property
    def num_skipped(self) -> int:
        return sum(not verdict for verdict in self.verdicts.values())
