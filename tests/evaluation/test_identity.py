"""Digests change with what decides a reply, and with nothing else."""

from __future__ import annotations

import os

import pytest

from ktr.evaluation.identity import evaluation_identity, media_stamp, parser_digest, weights_digest


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    return folder


def test_weights_are_told_by_content_not_by_place(checkpoint, tmp_path):
    first = weights_digest(checkpoint)
    moved = checkpoint.rename(tmp_path / "elsewhere")
    os.utime(moved / "model.safetensors", (1, 1))
    (moved / "README.md").write_text("notes")
    assert weights_digest(moved) == first
    (moved / "model.safetensors").write_bytes(b"weightz")
    assert weights_digest(moved) != first
    (moved / "model.safetensors").write_bytes(b"weights")
    (moved / "config.json").write_text("{ }")
    assert weights_digest(moved) != first


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(ValueError, match="holds no weights"):
        weights_digest(tmp_path)


def test_every_part_counts():
    first = evaluation_identity(weights="a", frames={"nframes": 16})
    assert first == evaluation_identity(frames={"nframes": 16}, weights="a")
    assert first != evaluation_identity(weights="a", frames={"nframes": 32})
    with pytest.raises(TypeError):
        evaluation_identity(weights=object())


def test_the_parser_has_one_digest():
    assert parser_digest() == parser_digest() and len(parser_digest()) == 16


def test_media_files_are_told_by_size_and_time(row, tmp_path):
    clip = tmp_path / "clip.mp4"
    assert media_stamp(row("a"), tmp_path) == ""
    clip.write_bytes(b"1234")
    first = media_stamp(row("a"), tmp_path)
    clip.write_bytes(b"12345")
    assert first != media_stamp(row("a"), tmp_path) != ""
    assert media_stamp(row("a", path=""), tmp_path) == ""
