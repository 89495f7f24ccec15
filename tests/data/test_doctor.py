"""The check of a data set: the right verdict for every file of the zoo, and files that say so."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from clips import write_clip
from zoo import write_zoo

from ktr.data.doctor import Limits, examine
from ktr.data.importers import load_rows
from ktr.data.inspection import InspectionSettings
from ktr.data.rows import Media, Row, RowError
from ktr.data.sampling import FrameSampling

SAMPLING = FrameSampling(nframes=4, min_pixels=28 * 28, max_pixels=56 * 56)
LIMITS = Limits(seconds=20.0, workers=2)


def settings(root: Path, **more) -> InspectionSettings:
    return InspectionSettings(**({"media_root": str(root), "sampling": SAMPLING, "prompt": "direct"} | more))


def check(rows, root, out, limits=LIMITS, errors=(), **more):
    return examine(rows, errors, out, settings(root, **more), limits, progress=False)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def row(number, path, question="what moved first ?", **media) -> Row:
    return Row(f"row-{number}", question, Media("video", path, **media), "free-form", (), "red", source="made")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    root = tmp_path_factory.mktemp("zoo")
    path, verdicts = write_zoo(root)
    return root, path, verdicts


@pytest.fixture(scope="module")
def checked(zoo, tmp_path_factory):
    root, path, _ = zoo
    out = tmp_path_factory.mktemp("checked")
    return out, check(load_rows("plain", path), root, out)


def test_every_animal_has_its_verdict(zoo, checked):
    _, _, verdicts = zoo
    out, summary = checked
    found = {line["id"]: line["reason"] for line in lines(out / "rejects.jsonl")}
    found |= dict.fromkeys((line["id"] for line in lines(out / "verified.jsonl")), None)
    assert found == verdicts
    assert len(verdicts) >= 40
    assert summary["reasons"] == dict(Counter(reason for reason in verdicts.values() if reason))


def test_rejects_say_which_file_and_why(checked):
    by_id = {line["id"].partition("-")[2]: line for line in lines(checked[0] / "rejects.jsonl")}
    assert by_id["zero.mp4"]["path"] == "zero.mp4" and by_id["zero.mp4"]["error"] == "the file has 0 bytes"
    assert "nowhere.mp4" in by_id["nowhere.mp4"]["path"]
    assert all(line["error"] and line["source"] == "zoo" for line in by_id.values())


def test_verified_rows_are_read_back_as_they_were(zoo, checked):
    _, path, verdicts = zoo
    imported = {one.id: one for one in load_rows("plain", path)}
    again = load_rows("plain", checked[0] / "verified.jsonl")
    assert {one.id for one in again} == {name for name, reason in verdicts.items() if reason is None}
    for one in again:
        before = imported[one.id]
        assert (one.question, one.media, one.answer, one.rationale) == (
            before.question, before.media, before.answer, before.rationale,
        )  # fmt: skip
        assert (one.duration is not None) == (one.modality == "video")


def test_the_summary_tells_what_is_odd(checked):
    _, summary = checked
    collisions = summary["name_collisions"]["examples"]
    assert collisions["video_10142.mp4"] == ["clevrer/video_10142.mp4", "perception/video_10142.mp4"]
    copies = summary["duplicate_files"]["examples"]
    assert any("视频.mp4" in paths for paths in copies.values())
    assert summary["codecs"]["h264"]["undecodable"] == 0 and summary["codecs"]["unknown"]["undecodable"] == 1
    assert summary["files"]["one frame, repeated"] == 1
    assert summary["rows"]["read"] == summary["rows"]["verified"] + summary["rows"]["rejected"]


def test_a_second_check_reads_only_what_changed(zoo, checked, tmp_path):
    root, path, _ = zoo
    out = tmp_path / "out"
    shutil.copytree(checked[0], out)
    with (out / "checked.jsonl").open("a") as journal:
        journal.write('{"key": "torn')
    rows = load_rows("plain", path)
    before = (out / "rejects.jsonl").read_bytes()
    assert check(rows, root, out)["files"]["taken from an earlier check"] == len({one.media for one in rows})
    assert (out / "rejects.jsonl").read_bytes() == before
    shutil.copy(root / "frames9.mp4", root / "frames2.mp4")
    try:
        assert check(rows, root, out)["files"]["taken from an earlier check"] == len({one.media for one in rows}) - 1
    finally:
        write_clip(root / "frames2.mp4", 2)
    assert check(rows, root, out, prompt="think")["files"]["taken from an earlier check"] == 0


def test_a_stopped_check_goes_on(tmp_path):
    rows = [row(number, write_clip(tmp_path / f"{number}.mp4", 4).name) for number in range(6)]
    check(rows[:4], tmp_path, tmp_path / "out")
    summary = check(rows, tmp_path, tmp_path / "out")
    assert summary["files"]["taken from an earlier check"] == 4 and summary["rows"]["verified"] == 6


def test_a_file_that_takes_too_long_is_a_bad_file_until_the_limit_is_raised(tmp_path):
    slow = write_clip(tmp_path / "slow.mp4", 600, size=(640, 360), gop=600, options={"preset": "ultrafast"})
    rows = [row(0, slow.name), row(1, write_clip(tmp_path / "quick.mp4", 4).name)]
    summary = check(rows, tmp_path, tmp_path / "out", Limits(seconds=0.02, workers=1), every_frame=True)
    assert summary["reasons"]["timeout"] >= 1
    (reject, *_) = lines(tmp_path / "out" / "rejects.jsonl")
    assert reject["id"] == "row-0" and "0.02 s" in reject["error"]
    assert check(rows, tmp_path, tmp_path / "out", every_frame=True)["rows"]["verified"] == 2


def test_damage_past_the_sampled_frames_is_found_on_request(tmp_path):
    import av

    path = write_clip(tmp_path / "x.mp4", 60, gop=10, options={"crf": "5"})
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    content = bytearray(path.read_bytes())
    for position, size in packets[44:48]:
        content[position : position + size] = bytes(size)
    path.write_bytes(content)
    rows = [row(0, "x.mp4")]
    assert check(rows, tmp_path, tmp_path / "a")["rows"]["verified"] == 1
    assert check(rows, tmp_path, tmp_path / "b", every_frame=True)["reasons"] == {"damaged": 1}


def test_rows_are_counted_as_well_as_files(tmp_path):
    write_clip(tmp_path / "a.mp4", 8)
    rows = [row(0, "a.mp4"), row(0, "a.mp4", "another ?"), row(1, "a.mp4"), row(2, "a.mp4", start=0.2)]
    errors = [RowError("start -1.0 is not a time", field="start", row_id="x", file="f.json", index=7), RowError("bad")]
    summary = check(rows, tmp_path, tmp_path / "out", errors=errors)
    assert summary["reasons"] == {"duplicate_id": 1, "bounds": 1, "invalid_row": 1}
    assert summary["duplicate_ids"]["examples"] == {"row-0": 2}
    assert summary["duplicate_rows"]["examples"] == {"row-0": ["row-1"]}
    assert summary["files"]["checked"] == 1
    first = lines(tmp_path / "out" / "rejects.jsonl")[0]
    assert (first["id"], first["file"], first["index"], first["reason"]) == ("x", "f.json", 7, "bounds")


def test_prompts_that_are_too_long_are_named(tmp_path):
    write_clip(tmp_path / "a.mp4", 8)
    summary = check([row(0, "a.mp4")], tmp_path, tmp_path / "out", max_prompt_tokens=4)
    assert summary["reasons"] == {"prompt_too_long": 1}
    (reject,) = lines(tmp_path / "out" / "rejects.jsonl")
    assert "8 tokens" in reject["error"] and summary["prompt_length"].startswith("visual tokens only")


def test_a_wrong_media_root_is_suspected(tmp_path, caplog):
    check([row(number, f"{number}.mp4") for number in range(3)], tmp_path, tmp_path / "out")
    assert "is data.media_root=" in caplog.text


def test_the_cache_is_filled_on_the_way(tmp_path):
    from ktr.data.disk_store import DiskStore
    from ktr.data.frame_store import FrameStore
    from ktr.data.media import load_frames

    path = write_clip(tmp_path / "a.mp4", 8)
    check([row(0, "a.mp4")], tmp_path, tmp_path / "out", cache=str(tmp_path / "cache"))
    store = FrameStore(DiskStore(tmp_path / "cache", 1 << 30))
    found = store.load(path, Media("video", "a.mp4"), SAMPLING, factor=28)
    assert store.store.hits == 1
    assert found.digest == load_frames(path, Media("video", "a.mp4"), SAMPLING, factor=28).digest


def test_a_row_of_a_type_that_nothing_scores_is_rejected(tmp_path):
    write_clip(tmp_path / "a.mp4", 8)
    rows = [row(0, "a.mp4"), dataclasses.replace(row(1, "a.mp4"), problem_type="multiple_choise")]
    summary = check(rows, tmp_path, tmp_path / "out")
    assert summary["reasons"] == {"invalid_row": 1} and summary["rows"]["verified"] == 1
    (reject,) = lines(tmp_path / "out" / "rejects.jsonl")
    assert reject["id"] == "row-1" and "unknown problem_type 'multiple_choise'; known: " in reject["error"]
