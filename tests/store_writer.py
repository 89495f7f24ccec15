"""Reads and writes a shared store: `python store_writer.py FOLDER SEED`; prints the largest size seen."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from ktr.data.disk_store import DiskStore, key_of

BOUND = 200_000


def write_many(folder: Path, seed: int) -> int:
    """80 reads of 60 keys, each written where it is missing; the most bytes the store held at any of them."""
    store = DiskStore(folder, BOUND)
    largest = 0
    for number in torch.randint(0, 60, (80,), generator=torch.Generator().manual_seed(seed)).tolist():
        found = store.get(key_of(number))
        if found is None:
            store.put(key_of(number), {"number": number}, {"x": torch.full((2000,), float(number))})
        else:
            assert found[0]["number"] == number and bool((found[1]["x"] == number).all())
        largest = max(largest, sum(path.stat().st_size for path in store.entries() if path.exists()))
    return largest


if __name__ == "__main__":
    print(write_many(Path(sys.argv[1]), int(sys.argv[2])))
