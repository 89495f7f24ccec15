"""Rows written and read back; data sets with a card that `datasets` loads without a network."""

from __future__ import annotations

import json

import pytest
import yaml
from clips import write_clip

from ktr.data.exporters import write_rows
from ktr.data.hub import parse_address
from ktr.data.importers import load_rows
from ktr.data.paths import MediaError
from ktr.data.publish import push, write_dataset
from ktr.data.rows import Media, Row, RowError

ROWS = [
    Row("1", "Which, \"one\"?\nnow", Media("video", "v/a b.mp4", 1.25, 2.5), "multiple choice", ("A. a", "B. b"), "B",
        "think\nhard", 12.5, "set", "kind"),
    Row("007", "How many 视频?", Media("image", "x.png"), "numerical", (), "5.0", None, None, "", ""),
    Row("3", "Say it", None, "free-form", (), "a, b", source="other", category="free-form"),
]  # fmt: skip


@pytest.mark.parametrize("format", ["jsonl", "json", "csv", "parquet"])
def test_rows_come_back_as_they_were(tmp_path, format):
    found = load_rows("plain", write_rows(ROWS, tmp_path / f"rows.{format}", format))
    if format == "csv":  # An empty cell is no value, so that an empty category takes its default.
        assert found[1].category == "numerical"
        found[1] = ROWS[1]
    assert found == ROWS


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_captions_and_captioning_rows_come_back(tmp_path, format):
    lines = "00:00-00:01: a\n00:01-00:02: b"
    rows = [
        Row("4", "Tell", Media("video", "v.mp4"), "captioning", (), lines, category="captioning", captions=lines,
            task="captioning"),
        Row("5", "Say it", Media("video", "v.mp4"), "free-form", (), "a", category="free-form", captions=lines),
    ]  # fmt: skip
    assert load_rows("plain", write_rows(rows, tmp_path / f"rows.{format}", format)) == rows


def test_video_r1s_schema(tmp_path):
    whole = [Row("9", "Which?", Media("video", "x.mp4"), "multiple choice", ("A. a", "B. b"), "B", "so", source="set")]
    (found,) = load_rows("video_r1", write_rows(whole, tmp_path / "rows.json", "video_r1"))
    assert (found.id, found.answer, found.rationale, found.media, found.options) == (
        "9", "B", "so", whole[0].media, whole[0].options,
    )  # fmt: skip
    with pytest.raises(ValueError, match="row '1' asks about a part"):
        write_rows(ROWS, tmp_path / "rows.json", "video_r1")
    with pytest.raises(ValueError, match="known: jsonl"):
        write_rows(ROWS, tmp_path / "rows.xml", "xml")


@pytest.fixture
def published(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / "v").mkdir()
    write_clip(tmp_path / "v" / "a b.mp4", 8)
    write_clip(tmp_path / "x.png", 1, codec="png", pix_fmt="rgb24", format="image2")
    return write_dataset(
        ROWS, tmp_path / "set", name="me/my set", license="cc-by-4.0", media_root=tmp_path, copy_media=True
    )


def test_a_published_folder_is_a_data_set(published):
    import datasets

    loaded = datasets.load_dataset(str(published), split="train")
    assert loaded.num_rows == 3 and loaded["answer"][1] == "5.0"
    found = load_rows("plain", published)
    assert [row.id for row in found] == [row.id for row in ROWS] and found[0].options == ROWS[0].options
    assert (published / found[0].media.path).read_bytes()[:12] and found[0].media.path == "media/v/a b.mp4"


def test_the_card_says_what_is_inside(published):
    _, head, text = (published / "README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["license"] == "cc-by-4.0" and metadata["size_categories"] == ["n<1K"]
    assert metadata["configs"][0]["data_files"][0]["path"] == "data/train-*.parquet"
    assert "| video | 1 |" in text and "| multiple choice | 1 |" in text and "`rationale`" in text


def test_a_missing_file_is_not_published(tmp_path):
    with pytest.raises(FileNotFoundError, match="a b.mp4"):
        write_dataset(ROWS, tmp_path / "set", name="x", media_root=tmp_path, copy_media=True)
    outside = [Row("1", "Which?", Media("video", "../x.mp4"), "free-form", (), "a")]
    with pytest.raises(MediaError, match="outside_root"):
        write_dataset(outside, tmp_path / "set", name="x", media_root=tmp_path, copy_media=True)
    with pytest.raises(ValueError, match="no rows"):
        write_dataset([], tmp_path / "set", name="x")


def test_nothing_is_pushed_without_a_token(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    assert "not pushed to me/x: set HF_TOKEN" in push(tmp_path, "me/x", private=True)


def test_with_a_token_the_folder_is_pushed(published, monkeypatch):
    import huggingface_hub

    calls = []

    class Api:
        def __init__(self, token):
            calls.append(("token", token))

        def create_repo(self, repo, **settings):
            calls.append((repo, settings["repo_type"], settings["private"]))

        def upload_folder(self, **settings):
            calls.append(settings["folder_path"])
            return type("Commit", (), {"commit_url": "https://hub/commit"})

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setenv("HF_TOKEN", "secret")
    said = push(published, "me/x", private=True)
    assert calls == [("token", "secret"), ("me/x", "dataset", True), str(published)]
    assert "https://hub/commit" in said and "secret" not in said


def test_saved_data_sets_and_splits(tmp_path):
    import datasets

    records = [{"id": str(n), "question": "Which?", "answer": "a"} for n in range(3)]
    splits = {"train": datasets.Dataset.from_list(records), "test": datasets.Dataset.from_list(records[:1])}
    both = datasets.DatasetDict(splits)
    both.save_to_disk(tmp_path / "both")
    assert len(load_rows("plain", tmp_path / "both")) == 3
    assert len(load_rows("plain", f"hf://{tmp_path}/both?split=test")) == 1
    with pytest.raises(RowError, match="split 'other'"):
        load_rows("plain", f"hf://{tmp_path}/both?split=other")


def test_media_inside_a_data_set_become_files(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    write_clip(tmp_path / "x.png", 1, codec="png", pix_fmt="rgb24", format="image2")
    content = (tmp_path / "x.png").read_bytes()
    text = datasets.Value("string")
    features = datasets.Features({"question": text, "answer": text, "image": datasets.Image()})
    record = {"question": "Which?", "answer": "a", "image": {"bytes": content, "path": "x.png"}}
    datasets.Dataset.from_list([record], features=features).save_to_disk(tmp_path / "set")
    (row,) = load_rows("plain", tmp_path / "set")
    assert row.media.kind == "image" and row.media.path.endswith(".png")
    with open(row.media.path, "rb") as file:
        assert file.read() == content


def test_a_name_that_is_not_here_says_what_to_do(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RowError, match="cannot be loaded with split 'train'.*HF_HUB_OFFLINE=1 forbids downloads"):
        load_rows("plain", "hf://nobody/nothing-of-this-name")


def test_addresses():
    assert parse_address("hf://a/b") == ("a/b", "train", None)
    assert parse_address("hf://a/b?split=test&config=c") == ("a/b", "test", "c")
    with pytest.raises(RowError, match="unknown part 'spilt'"):
        parse_address("hf://a/b?spilt=test")


def test_options_of_a_csv_are_json(tmp_path):
    path = write_rows(ROWS, tmp_path / "rows.csv", "csv")
    assert json.dumps(["A. a", "B. b"]).replace('"', '""') in path.read_text()
