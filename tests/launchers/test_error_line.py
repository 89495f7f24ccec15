"""One line for why a process failed, from what it wrote."""

from __future__ import annotations

import pytest

from launchers.error_line import error_line, killed_text, killed_worker

FAULT = """loading
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 22, in <module>
[rank1]:     raise KeyError("lost")
[rank1]: KeyError: 'lost'
Traceback (most recent call last):
  File "a.py", line 1
ConnectionError: the other rank is gone
""".splitlines()
REPORT = """Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : n1
  rank      : 3 (local_rank: 1)
  exitcode  : {code} (pid: 9)
  error_file: <N/A>
"""


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["a", "error: seed: must be at least 0", "error: other"], "seed: must be at least 0"),
        (FAULT, "KeyError: 'lost'"),
        ([*FAULT, "error: data.path: there is no x"], "data.path: there is no x"),
        (["all went well"], None),
        (["Traceback (most recent call last):", "  File"], None),
    ],
)
def test_the_entrys_own_line_comes_first_then_the_first_traceback(lines, line):
    assert error_line(lines) == line


def test_torchruns_report_names_a_worker_that_was_killed_but_not_one_that_it_ended_itself():
    assert killed_worker(REPORT.format(code=-9).splitlines()) == (3, 9)
    assert killed_worker(REPORT.format(code=-15).splitlines()) is None
    assert killed_worker(REPORT.format(code=1).splitlines()) is None
    assert killed_text(3, 9).startswith("rank 3 was killed by SIGKILL") and killed_text(0, 11).endswith("SIGSEGV")
