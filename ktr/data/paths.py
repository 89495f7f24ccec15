"""Where a row's media file lies on disk, and the error every media problem is reported with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ktr.data.rows import UnusableRowError

if TYPE_CHECKING:
    from ktr.data.rows import Media

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class MediaError(UnusableRowError):
    """A media file that cannot be used as asked.

    `reason` is a stable code for counting: `missing`, `unreadable`, `not_a_file`, `empty`, `undecodable`, `no_video`,
    `truncated`, `damaged`, `no_times`, `bounds`, `aspect_ratio`, `rotation`, `outside_root`, `remote`, `no_backend`.
    The first cause is chained as `__cause__`. `row_id` is the row that asked for it, where one did.
    """

    def __init__(self, path: str | Path, reason: str, detail: str, row_id: str | None = None) -> None:
        super().__init__(f"{'' if row_id is None else f'row {row_id!r}: '}{path}: {detail} [{reason}]")
        self.path = str(path)
        self.reason = reason
        self.detail = detail
        self.row_id = row_id

    def of_row(self, row_id: str) -> MediaError:
        """The same error, naming the row."""
        return type(self)(self.path, self.reason, self.detail, row_id)

    def __reduce__(self) -> tuple[type[MediaError], tuple[str, str, str, str | None]]:
        return type(self), (self.path, self.reason, self.detail, self.row_id)


def resolve_media(media: Media, root: str | Path | None) -> Path:
    """Absolute path of a row's file: `v/x.mp4` and `./v/x.mp4` lie under `root`, any character counts as itself.

    Only after `file://` may a path be percent-escaped: the name as written is taken if it exists, else the unescaped
    one. With a root, everything must stay under it (compared as text, so links inside the root may point anywhere);
    without one, paths are absolute or relative to the working folder. Whether the file exists is not checked here.

    Raises:
        MediaError: `outside_root`, or `remote` for a URL that is not `file://`.
    """
    text = media.path
    if text.startswith("file://"):
        written = text.removeprefix("file://")
        written = written.removeprefix("localhost") if written.startswith("localhost/") else written
        path = _under(written, root, text)
        return path if os.path.lexists(path) else _under(unquote(written), root, text)
    if _SCHEME.match(text):
        raise MediaError(text, "remote", "remote media are not read; download the file and give its path")
    return _under(text, root, text)


def _under(written: str, root: str | Path | None, original: str) -> Path:
    if root is None:
        return Path(os.path.abspath(written))
    base = Path(os.path.abspath(root))
    path = Path(os.path.normpath(base / written))
    if path.is_relative_to(base):
        return path
    real_base = Path(os.path.realpath(base))
    if path.is_relative_to(real_base):
        return path
    raise MediaError(original, "outside_root", f"the path leaves the media root {base}; move the file or the root")
