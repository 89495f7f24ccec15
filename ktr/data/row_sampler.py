"""The order in which training reads rows: shuffled by seed, the same on every rank, whole groups, unreadable rows out.

With a `readable` test, each index is tried before it is yielded and the next index of the order takes the place of an
unreadable one. Every rank iterates the whole order and tests the same files, so all ranks skip the same rows.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch.utils.data import Sampler

from ktr.data.rows import Row, UnusableRowError

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
        kinds: of each row; a batch then holds rows of one kind. None mixes them.
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
        kinds: Sequence[str] | None = None,
        readable: Callable[[int], bool] | None = None,
    ) -> None:
        if num_rows < 1:
            raise ValueError("there are no rows to train on")
        if num_rows < batch_rows:
            logger.warning("%d rows are fewer than the %d of one step: rows repeat within a step", num_rows, batch_rows)
        for kind, count in Counter(kinds or ()).items():
            if count < batch_rows:
                logger.warning(
                    "%d %s rows are fewer than the %d of one step, which are of one kind: they are used only where no "
                    "kind fills a step",
                    count, kind, batch_rows,
                )  # fmt: skip
        self.num_rows = num_rows
        self.seed = seed
        self.batch_rows = batch_rows
        self.group_size = group_size
        self.passes = passes
        self.kinds = kinds
        self.readable = readable
        self.epoch = 0

    def __len__(self) -> int:
        return self.num_batches * self.batch_rows * self.group_size * self.passes

    @property
    def num_batches(self) -> int:
        """Distinct batches of an epoch."""
        if self.kinds is None:
            return max(1, self.num_rows // self.batch_rows)
        return max(1, sum(count // self.batch_rows for count in Counter(self.kinds).values()))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed((self.seed << 20) + self.epoch)
        self.epoch += 1
        waiting: dict[str, list[int]] = defaultdict(list)
        missing = self.num_batches
        while missing:
            num_read = 0
            order = torch.randperm(self.num_rows, generator=generator).tolist()
            if isinstance(self.readable, ReadableRows):
                self.readable.look_ahead(order)
            for index in order:
                if self.readable is not None and not self.readable(index):
                    continue
                num_read += 1
                batch = waiting["" if self.kinds is None else self.kinds[index]]
                batch.append(index)
                if len(batch) == self.batch_rows:
                    yield from self._repeated(batch)
                    batch.clear()
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
    """Tests rows by encoding them once; unusable ones are remembered with the reason.

    Args:
        rows: all rows of the stage.
        load: makes a row's prompt, raising `UnusableRowError`; its cache of media serves the step that follows.
        on_skip: told about each skipped row, once, in the order of the rows' turns.
        ahead: rows whose media are read in threads before their turn; 0 reads each when its turn comes.
        threads: how many read ahead. Decoders let other threads run while they work.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        load: Callable[[Row], object],
        on_skip: Callable[[Row, UnusableRowError], None] | None = None,
        *,
        ahead: int = 0,
        threads: int = 2,
    ) -> None:
        self.rows = rows
        self.load = load
        self.on_skip = on_skip
        self.ahead = ahead
        self.threads = threads
        self.verdicts: dict[int, bool] = {}
        self._coming: Iterator[int] = iter(())
        self._reading: dict[int, Future[object]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def look_ahead(self, order: Sequence[int]) -> None:
        """Tells the order of the coming turns, so that media can be read before them."""
        self._coming = iter(order)

    def _read_ahead(self) -> None:
        while len(self._reading) < self.ahead and (index := next(self._coming, None)) is not None:
            if index not in self.verdicts:
                self._pool = self._pool or ThreadPoolExecutor(self.threads, thread_name_prefix="read-ahead")
                self._reading[index] = self._pool.submit(self.load, self.rows[index])

    def __call__(self, index: int) -> bool:
        reading = self._reading.pop(index, None)
        self._read_ahead()
        reading = reading or self._reading.pop(index, None)
        if index not in self.verdicts:
            try:
                if reading is None:
                    self.load(self.rows[index])
                else:
                    reading.result()
                self.verdicts[index] = True
            except UnusableRowError as error:
                self.verdicts[index] = False
                logger.warning("skipped: %s", error)
                if self.on_skip is not None:
                    self.on_skip(self.rows[index], error)
        return self.verdicts[index]

    @property
    def num_skipped(self) -> int:
        return sum(not verdict for verdict in self.verdicts.values())
