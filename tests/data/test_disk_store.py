"""The cache on disk: whole or absent entries, a bound that holds under concurrent writers, damage noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from clips import write_clip
from store_writer import BOUND

from ktr.data import frame_store
from ktr.data.content_digest import ContentDigests
from ktr.data.disk_store import DiskStore, key_of
from ktr.data.frame_store import FrameStore
from ktr.data.media import FrameSampling, MediaError, load_frames
from ktr.data.rows import Media

ROOT = Path(__file__).resolve().parents[2]
VIDEO = Media("video", "x.mp4")
FOUR = FrameSampling(nframes=4, min_pixels=56 * 56)


def stored_bytes(store):
    return sum(path.stat().st_size for path in store.entries())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_tensors_come_back_as_they_were(tmp_path, dtype):
    store = DiskStore(tmp_path, 1 << 20)
    tensors = {"a": torch.arange(15).view(3, 5), "b": torch.arange(7), "c": torch.tensor(2)}
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    assert store.put(key_of("x"), {"kind": "video", "times": [0.1, 0.2]}, tensors)
    meta, found = store.get(key_of("x"))
    assert meta == {"kind": "video", "times": [0.1, 0.2]}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype and torch.equal(found[name], tensor)


def test_the_bound_holds_and_what_was_used_last_stays(tmp_path):
    store = DiskStore(tmp_path, 50_000)
    for number in range(40):
        store.put(key_of(number), {}, {"x": torch.zeros(1000, dtype=torch.float32)})
        os.utime(store._path(key_of(number)), (number, number))
        if number >= 1:
            assert store.get(key_of(0)) is not None
        assert stored_bytes(store) <= 50_000
    assert len(store.entries()) > 8
    assert store.get(key_of(39)) is not None and store.get(key_of(5)) is None
    assert not store.put(key_of("large"), {}, {"x": torch.zeros(50_001, dtype=torch.uint8)})


def test_damage_is_noticed_and_removed(tmp_path, caplog):
    store = DiskStore(tmp_path, 1 << 20)
    store.put(key_of("x"), {}, {"x": torch.arange(100)})
    path = store._path(key_of("x"))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:5], b"", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        path.write_bytes(damaged)
        assert store.get(key_of("x")) is None and not path.exists()
        path.write_bytes(whole)
    assert "damaged" in caplog.text
    assert store.get(key_of("x")) is not None


def test_concurrent_writers_keep_whole_entries_within_the_bound(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "tests" / "store_writer.py"), str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(seed)], env=environment, stdout=subprocess.PIPE, text=True) for seed in range(4)
    ]
    printed = [writer.communicate(timeout=100)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    assert max(int(largest) for largest in printed) <= BOUND
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_disk_that_refuses_costs_the_cache_and_not_the_run(tmp_path, caplog, monkeypatch):
    store = DiskStore(tmp_path, 1 << 20)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for number in range(3):
        assert not store.put(key_of(number), {}, {"x": torch.arange(5)})
    assert caplog.text.count("No space left") == 1 and not list(tmp_path.rglob("*.tmp"))


def count_decodes(monkeypatch):
    calls = []

    def counted(path, *args, **settings):
        calls.append(path)
        return load_frames(path, *args, **settings)

    monkeypatch.setattr(frame_store, "load_frames", counted)
    return calls


def test_frames_from_the_store_are_those_decoded(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "x.mp4", 20, rotation=90)
    calls = count_decodes(monkeypatch)
    decoded = load_frames(path, VIDEO, FOUR, factor=28)
    store = FrameStore(DiskStore(tmp_path / "cache", 1 << 30))
    first = store.load(path, VIDEO, FOUR, factor=28)
    again = FrameStore(DiskStore(tmp_path / "cache", 1 << 30)).load(path, VIDEO, FOUR, factor=28)
    assert len(calls) == 1
    for found in (first, again):
        assert torch.equal(found.pixels_T3HW, decoded.pixels_T3HW)
        for name in ("indices", "times", "second_per_grid", "digest", "source_size", "duration", "repeated", "backend"):
            assert getattr(found, name) == getattr(decoded, name) and type(getattr(found, name)) is type(
                getattr(decoded, name)
            )


def test_whatever_changes_the_frames_changes_the_key(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "x.mp4", 20)
    calls = count_decodes(monkeypatch)
    store = FrameStore(DiskStore(tmp_path / "cache", 1 << 30))
    cases = [
        (VIDEO, FOUR, {"factor": 28}),
        (Media("video", "x.mp4", 0.5), FOUR, {"factor": 28}),
        (Media("video", "x.mp4", 0.0, 1.0), FOUR, {"factor": 28}),
        (VIDEO, FrameSampling(nframes=6, min_pixels=56 * 56), {"factor": 28}),
        (VIDEO, FrameSampling(nframes=4, min_pixels=56 * 84), {"factor": 28}),
        (VIDEO, FOUR, {"factor": 32}),
        (VIDEO, FOUR, {"factor": 28, "decoder": "pyav"}),
    ]
    for case, sampling, settings in cases * 2:
        store.load(path, case, sampling, **settings)
    assert len(calls) == len(cases)


def test_the_key_is_the_content_not_the_name(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "x.mp4", 20)
    calls = count_decodes(monkeypatch)
    store = FrameStore(DiskStore(tmp_path / "cache", 1 << 30))
    first = store.load(path, VIDEO, FOUR, factor=28)
    (tmp_path / "copy.mp4").write_bytes(path.read_bytes())
    store.load(tmp_path / "copy.mp4", VIDEO, FOUR, factor=28)
    assert len(calls) == 1
    write_clip(path, 12)
    assert store.load(path, VIDEO, FOUR, factor=28).digest != first.digest and len(calls) == 2


def test_errors_are_told_and_not_kept(tmp_path):
    store = FrameStore(DiskStore(tmp_path / "cache", 1 << 30))
    with pytest.raises(MediaError, match="missing"):
        store.load(tmp_path / "x.mp4", VIDEO, FOUR, factor=28)
    (tmp_path / "x.mp4").write_text("no video")
    with pytest.raises(MediaError, match="undecodable"):
        store.load(tmp_path / "x.mp4", VIDEO, FOUR, factor=28)
    write_clip(tmp_path / "x.mp4", 9)
    assert store.load(tmp_path / "x.mp4", VIDEO, FOUR, factor=28).total_frames == 9


def test_digests_are_remembered_until_the_file_changes(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"one")
    os.utime(path, (time.time() - 60,) * 2)
    digests = ContentDigests(tmp_path)
    first = digests.of(path)
    assert (tmp_path / "digests.jsonl").read_text().count("\n") == 1
    assert ContentDigests(tmp_path).of(path) == first and (tmp_path / "digests.jsonl").read_text().count("\n") == 1
    path.write_bytes(b"two")
    assert digests.of(path) != first
    with (tmp_path / "digests.jsonl").open("ab") as file:
        file.write(b'["torn')
    assert ContentDigests(tmp_path).of(path) == digests.of(path)


def test_a_file_still_being_written_is_not_remembered(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"one")
    ContentDigests(tmp_path).of(path)
    assert not (tmp_path / "digests.jsonl").exists()
