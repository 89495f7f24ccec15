"""Record files survive a kill at any byte, and never pass a damaged or foreign line off as a result."""

from __future__ import annotations

import json
import logging

import pytest

from ktr.evaluation.records import RecordWriter, read_records


def test_records_come_back_as_written(tmp_path, record):
    records = [
        record("a", reply='line one\nline two\u2028 \u4f60\u597d "quoted"', parsed=None, frames=()),
        record("b", None, status="abstained", sample=3, detail="judge"),
        record("c", 0.25, status="media_error", view_changed=False),
    ]
    with RecordWriter(tmp_path / "deep" / "records.jsonl") as writer:
        writer.write(records)
    read = read_records(tmp_path / "deep" / "records.jsonl")
    assert read.records == records
    assert read.torn_bytes == 0
    assert len((tmp_path / "deep" / "records.jsonl").read_bytes().splitlines()) == 3


def test_lone_surrogates_are_kept(tmp_path, record):
    broken = record("a", reply="half \ud800 character")
    with RecordWriter(tmp_path / "r.jsonl") as writer:
        writer.write([broken])
    assert read_records(tmp_path / "r.jsonl").records == [broken]


def test_killed_at_any_byte_then_resumed_nothing_is_lost_or_doubled(tmp_path, record, monkeypatch):
    monkeypatch.setattr("ktr.evaluation.records.os.fsync", lambda handle: None)  # hundreds of them, and no power cut
    records = [record(name, reply="\u4f60\u597d") for name in "abc"]
    with RecordWriter(tmp_path / "whole.jsonl") as writer:
        writer.write(records)
    data = (tmp_path / "whole.jsonl").read_bytes()
    path = tmp_path / "torn.jsonl"
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    for size in sorted({*range(0, len(data), 7), *(end + step for end in ends for step in (-2, -1, 0, 1))}):
        if size > len(data):
            continue
        path.write_bytes(data[:size])
        kept = read_records(path)
        assert kept.records == records[: data[:size].count(b"\n")]
        assert kept.torn_bytes == size - (data[:size].rfind(b"\n") + 1)
        with RecordWriter(path) as writer:
            writer.write(records[len(kept.records) :])
        assert path.read_bytes() == data


def test_torn_tail_is_reported(tmp_path, record, caplog):
    path = tmp_path / "r.jsonl"
    path.write_text(record("a").to_json() + "\n" + '{"id": "b"')
    with caplog.at_level(logging.WARNING):
        assert read_records(path).torn_bytes == 10
    assert "torn last line of 10 bytes" in caplog.text


@pytest.mark.parametrize("line", ["not json", '{"id": "a"}', "[1]", '{"more": 1}'])
def test_complete_damaged_line_names_file_and_line(tmp_path, record, line):
    path = tmp_path / "r.jsonl"
    path.write_text(record("a").to_json() + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"r\.jsonl:2: unreadable record"):
        read_records(path)


def test_unknown_field_is_named(tmp_path, record):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({**json.loads(record("a").to_json()), "extra": 1}) + "\n")
    with pytest.raises(ValueError, match="extra"):
        read_records(path)


def test_sample_recorded_twice_is_refused(tmp_path, record):
    path = tmp_path / "r.jsonl"
    path.write_text((record("a").to_json() + "\n") * 2)
    with pytest.raises(ValueError, match="also on line 1"):
        read_records(path)


def test_not_a_number_never_reaches_the_file(tmp_path, record):
    with RecordWriter(tmp_path / "r.jsonl") as writer, pytest.raises(ValueError, match="JSON compliant"):
        writer.write([record("a", float("nan"))])
    assert read_records(tmp_path / "r.jsonl").records == []


def test_lines_are_visible_before_close_and_forced_to_disk_every_n(tmp_path, record, monkeypatch):
    synced = []
    monkeypatch.setattr("ktr.evaluation.records.os.fsync", synced.append)
    with RecordWriter(tmp_path / "r.jsonl", sync_every=3) as writer:
        writer.write([record("a"), record("b")])
        assert len(read_records(tmp_path / "r.jsonl").records) == 2
        assert len(synced) == 0
        writer.write([record("c")])
        assert len(synced) == 1
    assert len(synced) == 2
