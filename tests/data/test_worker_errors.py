"""An error in a data loader's worker is the same error in the main process."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from ktr.data.paths import MediaError
from ktr.data.worker_errors import batches_or_raise, carries_errors


@carries_errors
def collate(examples):
    if 3 in examples:
        raise MediaError("/v/3.mp4", "missing", "no such file", "row-3")
    return examples


@pytest.mark.parametrize("workers", [0, 1])
def test_the_error_names_row_and_file(workers):
    loader = DataLoader(list(range(6)), batch_size=2, collate_fn=collate, num_workers=workers)
    batches = batches_or_raise(loader)
    assert next(batches) == [0, 1]
    with pytest.raises(MediaError, match=r"^row 'row-3': /v/3.mp4: no such file \[missing\]$") as caught:
        next(batches)
    assert (caught.value.reason, caught.value.row_id) == ("missing", "row-3")
