"""How many processes may decode ahead of training within a bound on memory."""

from __future__ import annotations

import logging

from ktr.data.sampling import FrameSampling

logger = logging.getLogger(__name__)

BATCHES_AHEAD = 2
"""Batches each worker holds ready, as torch's data loader does; one more is in the making."""
DECODED_BYTES = 3
BYTES_PER_PIXEL = DECODED_BYTES + 3 * 4
"""Of a frame as decoded (uint8 RGB) and as the model's input (float32 patches)."""


def largest_prompt_bytes(sampling: FrameSampling) -> int:
    """What the media of one prompt can take at most."""
    frames = sampling.nframes or sampling.max_frames
    return frames * max(sampling.frame_budget(frames), sampling.max_pixels // frames) * BYTES_PER_PIXEL


def rows_kept(sampling: FrameSampling, memory_bytes: int) -> int:
    """Rows whose decoded frames `memory_bytes` can hold, however large they are."""
    return memory_bytes * BYTES_PER_PIXEL // (DECODED_BYTES * largest_prompt_bytes(sampling))


def affordable_workers(workers: int, *, rows_per_batch: int, sampling: FrameSampling, memory_bytes: int) -> int:
    """`workers`, or as many as can hold their batches within `memory_bytes`, which is logged.

    With 0 workers media are decoded between the steps, one batch at a time.
    """
    a_worker = (BATCHES_AHEAD + 1) * rows_per_batch * largest_prompt_bytes(sampling)
    affordable = memory_bytes // a_worker
    if workers <= affordable:
        return workers
    logger.warning(
        "data.workers=%d would hold up to %.1f GB of batches ready, %.1f GB each, and data.memory_gb is %.1f: %d are "
        "used. Raise data.memory_gb, or lower the frames, the pixels or the rows of a step",
        workers, workers * a_worker / 2**30, a_worker / 2**30, memory_bytes / 2**30, affordable,
    )  # fmt: skip
    return affordable
