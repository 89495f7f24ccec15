"""Evaluation keeps every row, resumes to the same records, and never mixes evaluations."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from ktr.data.paths import MediaError
from ktr.evaluation.metrics import accuracy, counts
from ktr.evaluation.records import read_records
from ktr.evaluation.runner import evaluate
from ktr.rollout.engine import SamplingSettings


@pytest.fixture
def rows(row):
    return [row(name) for name in "abcdefg"]


@pytest.fixture
def run(engine, encoder, rows, greedy):
    def run_with(**changes):
        values = {"engine": engine, "encoder": encoder, "rows": rows, "settings": greedy, **changes}
        return evaluate(**{"progress": False, "batch_size": 3, **values})

    return run_with


def test_every_row_is_scored_in_order(run, rows, engine, encoder):
    records = run()
    assert [record.id for record in records] == [row.id for row in rows]
    assert accuracy(records).mean == 1.0
    first = records[0]
    assert (first.parsed, first.status, first.format, first.num_tokens) == ("A", "ok", 1.0, 3)
    assert first.reply == "<think>look</think><answer>A</answer>"
    assert first.frames == tuple(range(0, 80, 10))
    assert [ids for ids, _, _ in engine.calls] == [("a", "b", "c"), ("d", "e", "f"), ("g",)]
    assert encoder.threads and threading.get_ident() not in encoder.threads


def test_batch_size_does_not_change_greedy_records(run):
    assert run(batch_size=1) == run(batch_size=7)


def test_views_reach_the_model(run):
    shuffled = run(view="shuffled", seed=3)
    last_is_largest = [float(record.frames[-1] == 70) for record in shuffled]
    assert [record.accuracy for record in shuffled] == last_is_largest
    assert 0.0 in last_is_largest
    blind = run(view="no_video")
    assert {record.reply for record in blind} == {"<think>look</think><answer>nothing</answer>"}
    assert {record.view for record in blind} == {"no_video"}


def test_unreadable_media_counts_as_wrong_and_is_named(run, row, rows, engine, caplog):
    broken = row("broken", path="missing.mp4")
    records = run(rows=[*rows[:3], broken, rows[3]])
    assert [record.status for record in records] == ["ok", "ok", "ok", "media_error", "ok"]
    assert accuracy(records).mean == 0.8
    assert counts(records).media_error == 1
    assert "missing.mp4" in records[3].detail
    assert "1 of 5 rows had unreadable media and count as wrong, the first" in caplog.text
    assert all("broken" not in ids for ids, _, _ in engine.calls)


def test_a_batch_of_unreadable_media_needs_no_model(run, row, engine):
    records = run(rows=[row("x", path="missing.mp4")])
    assert records[0].status == "media_error"
    assert engine.calls == []


def test_unreadable_media_can_stop_the_evaluation(run, row, encoder):
    with pytest.raises(MediaError):
        run(rows=[row("x", path="missing.mp4")], on_error="raise")
    encoder.reason = "no_backend"
    with pytest.raises(MediaError, match="no_backend"):
        run(rows=[row("x", path="missing.mp4")])


def test_cut_off_replies_are_their_own_status(run, engine):
    engine.truncated = True
    engine.wording = "<think>{} and so on"
    records = run()
    assert {record.status for record in records} == {"truncated"}
    assert accuracy(records).mean == 0.0
    assert counts(records).truncated == 7


@pytest.mark.parametrize("batches", range(4))
@pytest.mark.parametrize("torn", [0, 1, 40])
def test_killed_and_resumed_equals_unbroken(run, engine, tmp_path, batches, torn):
    sampled = SamplingSettings(max_new_tokens=8, temperature=1.0)
    unbroken = run(settings=sampled, num_samples=2, record_path=tmp_path / "whole.jsonl")
    path = tmp_path / "killed.jsonl"
    engine.calls.clear()
    engine.fail_after = batches
    if batches < 3:
        with pytest.raises(KeyboardInterrupt):
            run(settings=sampled, num_samples=2, record_path=path)
    else:
        run(settings=sampled, num_samples=2, record_path=path)
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - torn)])
    engine.fail_after = None
    resumed = run(settings=sampled, num_samples=2, record_path=path)
    assert resumed == unbroken
    assert sorted(read_records(path).records, key=lambda r: r.key) == sorted(unbroken, key=lambda r: r.key)


def test_finished_evaluation_generates_nothing_more(run, engine, encoder, tmp_path):
    first = run(record_path=tmp_path / "r.jsonl")
    engine.calls.clear()
    encoder.loaded.clear()
    assert run(record_path=tmp_path / "r.jsonl") == first
    assert engine.calls == [] and encoder.loaded == []


def test_two_views_share_a_file(run, tmp_path):
    path = tmp_path / "r.jsonl"
    run(record_path=path)
    run(record_path=path, view="shuffled")
    assert len(read_records(path).records) == 14


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"identity": "other weights"},
        {"settings": SamplingSettings(max_new_tokens=9, temperature=0.0)},
    ],
)
def test_records_of_another_evaluation_are_refused(run, tmp_path, change):
    run(record_path=tmp_path / "r.jsonl")
    with pytest.raises(ValueError, match="name a new record file"):
        run(record_path=tmp_path / "r.jsonl", **change)


def test_records_of_a_changed_row_are_refused(run, rows, tmp_path):
    run(record_path=tmp_path / "r.jsonl")
    with pytest.raises(ValueError, match="'a' was recorded from another row, media"):
        run(record_path=tmp_path / "r.jsonl", rows=[dataclasses.replace(rows[0], answer="B"), *rows[1:]])


def test_more_rows_continue_a_finished_file(run, rows, engine, tmp_path):
    run(rows=rows[:4], record_path=tmp_path / "r.jsonl")
    engine.calls.clear()
    assert [record.id for record in run(record_path=tmp_path / "r.jsonl")] == [row.id for row in rows]
    assert [ids for ids, _, _ in engine.calls] == [("d", "e", "f"), ("g",)]
    assert len(read_records(tmp_path / "r.jsonl").records) == 7


def test_seeds_differ_between_batches_and_runs(run, engine):
    run(seed=0)
    run(seed=1)
    seeds = [seed for _, _, seed in engine.calls]
    assert len(set(seeds)) == 6
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_impossible_calls_are_refused(run, row):
    with pytest.raises(ValueError, match=r"unique.*'a'"):
        run(rows=[row("a"), row("a")])
    with pytest.raises(ValueError, match="batch_size"):
        run(batch_size=0)
    with pytest.raises(ValueError, match="on_error"):
        run(on_error="skip")
