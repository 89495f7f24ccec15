"""What a file holds, as a digest: read once, remembered for as long as size and modification time stay."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 20
SETTLED_SECONDS = 2.0
"""A file changed more recently than this may change again within its time stamp's resolution: not remembered."""


class ContentDigests:
    """Digests of files, with a memory in `folder/digests.jsonl` that several processes may share and append to."""

    def __init__(self, folder: Path | None) -> None:
        self._memory = None if folder is None else folder / "digests.jsonl"
        self._known: dict[str, str] = {}
        self._read_to = 0

    def of(self, path: Path) -> str:
        """The digest of the file's content. Raises OSError where it cannot be read."""
        status = path.stat()
        name = f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}"
        if name not in self._known:
            self._catch_up()
        if name in self._known:
            return self._known[name]
        digest = hashlib.blake2b(digest_size=20)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        found = digest.hexdigest()
        if time.time() - status.st_mtime > SETTLED_SECONDS:
            self._known[name] = found
            self._append(name, found)
        return found

    def _append(self, name: str, digest: str) -> None:
        if self._memory is None:
            return
        line = (json.dumps([name, digest]) + "\n").encode()
        with suppress(OSError):  # Without the memory a digest is only computed again.
            descriptor = os.open(self._memory, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _catch_up(self) -> None:
        """Lines that were appended since the last look; a line that a killed process left unfinished is passed over."""
        if self._memory is None:
            return
        try:
            with self._memory.open("rb") as file:
                file.seek(self._read_to)
                content = file.read()
        except OSError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError):
                name, digest = json.loads(line)
                self._known[name] = digest
