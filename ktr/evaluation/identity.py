"""What decides a reply beside its row: weights, wording, frames, decoding. Evaluations share nothing unless equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ktr import rewards
from ktr.data.paths import MediaError, resolve_media
from ktr.data.rows import Row

# Everything of a checkpoint that can change a reply: weights, tokenizer, processor, chat template.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_SETTINGS = (".json", ".jinja", ".txt", ".model")
_CHUNK = 16 << 20


def weights_digest(path: str | Path) -> str:
    """A digest of a checkpoint's files by content, whatever they are called; a hub name stands for its local copy.

    Raises:
        ValueError: there are no weights.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(str(path), local_files_only=True))
    files = sorted(file for file in folder.iterdir() if file.suffix in _WEIGHTS + _SETTINGS and file.is_file())
    if not any(file.suffix in _WEIGHTS for file in files):
        raise ValueError(f"{path}: the checkpoint holds no weights ({', '.join(_WEIGHTS)})")
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:16]


def evaluation_identity(**parts: Any) -> str:
    """A digest of named settings; mappings and sequences of plain values are fine."""
    content = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=_refuse)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@cache
def parser_digest() -> str:
    """A digest of the code that reads and scores replies: scores of two digests may differ on the same replies."""
    folder = Path(rewards.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def media_stamp(row: Row, media_root: str | Path | None) -> str:
    """Size and time of change of a row's media file; empty for a text row and for a file that is not there."""
    if row.media is None:
        return ""
    try:
        found = resolve_media(row.media, media_root).stat()
    except (MediaError, OSError):
        return ""
    return f"{found.st_size}:{found.st_mtime_ns}"


def _refuse(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r} cannot be part of an identity")
