"""A file is replaced whole or not at all."""

from __future__ import annotations

import pytest

from ktr.reporting.files import write_atomic


def test_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch):
    path = write_atomic(tmp_path / "new" / "a.txt", "old \u4f60")
    assert path.read_text(encoding="utf-8") == "old \u4f60"

    def full_disk(handle):
        raise OSError("no space left")

    monkeypatch.setattr("ktr.reporting.files.os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, "new")
    assert path.read_text(encoding="utf-8") == "old \u4f60"
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]


def test_lone_surrogates_do_not_stop_a_report(tmp_path):
    assert write_atomic(tmp_path / "a.txt", "x\ud800y").read_text(encoding="utf-8") == "x?y"
