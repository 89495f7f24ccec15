"""The bound on what workers hold ready."""

from __future__ import annotations

import pytest

from ktr.data.prefetch import BATCHES_AHEAD, affordable_workers, largest_prompt_bytes
from ktr.data.sampling import FrameSampling

SIXTEEN = FrameSampling(nframes=16, max_pixels=1000, min_pixels=100)


def test_a_prompt_takes_its_frames_as_decoded_and_as_patches():
    assert largest_prompt_bytes(SIXTEEN) == 16 * 1000 * (3 + 12)
    by_time = FrameSampling(fps=2.0, max_frames=100, max_pixels=1000, min_pixels=100, total_pixels=20_000)
    assert largest_prompt_bytes(by_time) == 100 * 400 * 15


@pytest.mark.parametrize(("wanted", "memory", "used"), [(2, 10.0, 2), (4, 3.5, 3), (1, 0.5, 0), (0, 0.1, 0)])
def test_workers_stay_within_the_bound_and_a_cut_is_said(wanted, memory, used, caplog):
    a_worker = 8 * 16 * 1000 * 15 * (BATCHES_AHEAD + 1)
    memory_bytes = int(memory * a_worker)
    assert affordable_workers(wanted, rows_per_batch=8, sampling=SIXTEEN, memory_bytes=memory_bytes) == used
    assert ("data.memory_gb" in caplog.text) == (used < wanted)
