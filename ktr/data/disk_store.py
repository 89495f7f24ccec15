"""Tensors on disk under a key: bounded in size, verified when read, safe with many readers and writers.

An entry is one file, written beside its place and moved there whole, so that a reader never sees half of one. Its first
bytes are a checksum of the rest. Writers take turns at a lock, keep one count of the bytes stored, and drop the entries
that were used longest ago before a new one would pass the bound.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

logger = logging.getLogger(__name__)

FORMAT = 2
"""Of an entry's bytes; raise it when they change."""
CHECKSUM_BYTES = 16
ALIGNMENT = 16
"""Tensors begin at multiples of it, so that they can be read in place."""
FILL_AFTER_DROP = 0.9
"""Share of the bound that is left filled when entries are dropped, so that not every write has to drop some."""
UNFINISHED_SECONDS = 3600.0
"""Unfinished files older than this belong to writers that were killed."""


class DiskStore:
    """Entries under `folder`, at most `max_bytes` of them.

    Example::

        store = DiskStore("cache", max_bytes=64 << 30)
        store.put(key, {"fps": 2.0}, {"pixels": pixels_T3HW})
        meta, tensors = store.get(key)
    """

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        if max_bytes < 1:
            raise ValueError(f"a cache of {max_bytes} bytes holds nothing")
        self.folder = Path(folder).expanduser().absolute()
        self.max_bytes = max_bytes
        self.hits = self.misses = 0
        self._complained = False
        (self.folder / "entries").mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
        """Meta data and tensors of an entry; None where there is none, or where it is damaged, which removes it."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                content = bytearray(os.fstat(file.fileno()).st_size)
                file.readinto(content)
            os.utime(path)
        except FileNotFoundError:
            self.misses += 1
            return None
        except OSError as error:
            self._complain(f"{path} cannot be read: {error}")
            self.misses += 1
            return None
        if _checksum(memoryview(content)[CHECKSUM_BYTES:]) != bytes(content[:CHECKSUM_BYTES]):
            logger.warning("%s is damaged: it is removed and made again", path)
            path.unlink(missing_ok=True)
            self.misses += 1
            return None
        self.hits += 1
        return _unpack(content)

    def put(self, key: str, meta: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bool:
        """Stores an entry; False where it is larger than the whole bound, is there already, or the disk refuses it."""
        content = _pack(meta, tensors)
        path = self._path(key)
        if len(content) > self.max_bytes or path.exists():
            return False
        unfinished = path.with_name(f".{uuid4().hex}.tmp")
        try:
            path.parent.mkdir(exist_ok=True)
            unfinished.write_bytes(content)
            with self._locked():
                if path.exists():
                    return False
                stored = self._stored_bytes()
                if stored + len(content) > self.max_bytes:
                    stored = self._drop(len(content))
                os.replace(unfinished, path)
                self._note_bytes(stored + len(content))
            return True
        except OSError as error:
            self._complain(f"{path} cannot be written, so it is not kept: {error}")
            return False
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def entries(self) -> list[Path]:
        return [path for path in (self.folder / "entries").glob("*/*") if not path.name.startswith(".")]

    def _path(self, key: str) -> Path:
        return self.folder / "entries" / key[:2] / key

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _stored_bytes(self) -> int:
        """Bytes of all entries, as the last writer noted them. Damaged entries that a reader removed still count."""
        try:
            return int((self.folder / "bytes").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return sum(size for _, size, _ in self._scan())

    def _note_bytes(self, stored: int) -> None:
        note = self.folder / ".bytes.tmp"
        note.write_text(str(stored), encoding="ascii")
        os.replace(note, self.folder / "bytes")

    def _scan(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of every entry; leftovers of killed writers are removed."""
        found = []
        for path in (self.folder / "entries").glob("*/*"):
            with suppress(FileNotFoundError):
                status = path.stat()
                if not path.name.startswith("."):
                    found.append((status.st_mtime, status.st_size, path))
                elif time.time() - status.st_mtime > UNFINISHED_SECONDS:
                    path.unlink()
        return found

    def _drop(self, coming: int) -> int:
        """Removes what was used longest ago until `coming` bytes fit; the bytes that stay."""
        found = sorted(self._scan())
        stored = sum(size for _, size, _ in found)
        room = max(min(int(self.max_bytes * FILL_AFTER_DROP), self.max_bytes - coming), 0)
        for _, size, path in found:
            if stored <= room:
                break
            path.unlink(missing_ok=True)
            stored -= size
        return stored

    def _complain(self, problem: str) -> None:
        if not self._complained:
            logger.warning("cache: %s (said once)", problem)
            self._complained = True


def key_of(*parts: Any) -> str:
    """A key from everything that decides an entry's content."""
    return hashlib.blake2b(json.dumps([FORMAT, *parts], sort_keys=True).encode(), digest_size=20).hexdigest()


def _pack(meta: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bytes:
    described, pieces, place = {}, [], 0
    for name, tensor in tensors.items():
        assert tensor.numel() > 0, "an entry holds no empty tensors"
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        described[name] = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), place, len(data)]
        pieces += [data, bytes(-len(data) % ALIGNMENT)]
        place += len(data) + -len(data) % ALIGNMENT
    header = json.dumps({"meta": dict(meta), "tensors": described}).encode()
    start = CHECKSUM_BYTES + 8 + len(header)
    rest = b"".join([len(header).to_bytes(8, "little"), header, bytes(-start % ALIGNMENT), *pieces])
    return _checksum(rest) + rest


def _checksum(content: bytes | memoryview) -> bytes:
    """SHA-256, which processors compute themselves, cut short: reading is to cost little beside decoding."""
    return hashlib.sha256(content).digest()[:CHECKSUM_BYTES]


def _unpack(content: bytearray) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    length = int.from_bytes(content[CHECKSUM_BYTES : CHECKSUM_BYTES + 8], "little")
    start = CHECKSUM_BYTES + 8 + length
    header = json.loads(content[CHECKSUM_BYTES + 8 : start])
    start += -start % ALIGNMENT
    tensors = {}
    for name, (dtype, shape, place, size) in header["tensors"].items():
        raw = torch.frombuffer(content, dtype=torch.uint8, count=size, offset=start + place)
        tensors[name] = raw.view(getattr(torch, dtype)).view(shape)
    return header["meta"], tensors
