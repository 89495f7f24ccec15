"""How long training waits for data: `data/wait_share`, the share of the time since the last log that batches took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ktr.data.worker_errors import batches_or_raise

WAIT_SHARE = "data/wait_share"


class TimesData:
    """Put before a transformers trainer. Where workers keep up with the steps the share is near 0."""

    _waited = 0.0
    _logged_at: float | None = None

    # Transformers takes the batches of one optimizer step here, and nothing else.
    def get_batch_samples(self, epoch_iterator: Iterator[Any], *args: Any, **kwargs: Any) -> Any:
        started = time.monotonic()
        if self._logged_at is None:
            self._logged_at = started
        batches = super().get_batch_samples(  # type: ignore[misc]
            batches_or_raise(epoch_iterator), *args, **kwargs
        )
        self._waited += time.monotonic() - started
        return batches

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        now = time.monotonic()
        if "loss" in logs and self._logged_at is not None:
            logs[WAIT_SHARE] = self._waited / max(now - self._logged_at, 1e-9)
            self._waited, self._logged_at = 0.0, now
        super().log(logs, start_time)  # type: ignore[misc]
