"""The line of a log that says why a process failed."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

ENTRY_ERROR = "error: "
TRACEBACK = "Traceback (most recent call last):"
# A worker in torchrun's report, which names the one that failed first at its end.
REPORTED = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")


def error_line(lines: Sequence[str]) -> str | None:
    """The entry's own line, else the end of the first traceback, or None where neither is there."""
    for line in lines:
        if line.startswith(ENTRY_ERROR):
            return line.removeprefix(ENTRY_ERROR)
    within = False
    for line in lines:
        line = re.sub(r"^\[rank\d+\]:\s?", "", line)
        if line.startswith(TRACEBACK):
            within = True
        elif within and line and not line[0].isspace():
            return line
    return None


def killed_worker(lines: Sequence[str]) -> tuple[int, int] | None:
    """Rank and signal of a worker that was killed, where torchrun reports one that it did not end itself."""
    for rank, code in REPORTED.findall("\n".join(lines)):
        if int(code) < 0 and -int(code) != signal.SIGTERM:
            return int(rank), -int(code)
    return None


def killed_text(rank: int, signum: int) -> str:
    hint = " (kill -9, or out of memory)" if signum == signal.SIGKILL else ""
    return f"rank {rank} was killed by {signal.Signals(signum).name}{hint}"
