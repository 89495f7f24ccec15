from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import pytest

import ktr.data.toy_world as toy_world
from ktr.data.toy_scenes import COUNTS, KINDS, VOCABULARY, read_facts
from ktr.data.toy_world import SPLITS, ToyWorld
from ktr.models.toy_tokenizer import build_toy_tokenizer

SMALL = {"train_clips": 12, "validation_clips": 2, "test_clips": 5, "seed": 3}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> ToyWorld:
    return ToyWorld.prepare(tmp_path_factory.mktemp("cache"), **SMALL)


def test_rows_are_complete_and_their_clips_are_there(world):
    for split, clips in (("train", 12), ("validation", 2), ("test", 5)):
        rows = world.rows(split)
        assert len(rows) == 3 * clips == len({row.id for row in rows})
        for row in rows:
            assert (world.root / row.media.path).is_file() and row.media.path.startswith(f"clips/{split}-")
            assert row.rationale and row.answer and row.category in KINDS
            assert row.problem_type == KINDS[row.category].problem_type


def test_captions_say_what_happens_in_the_toy_worlds_words(world):
    for split in SPLITS:
        for asked in world._asked[split]:
            facts = read_facts(asked.scene)
            text = asked.row.captions
            lines = text.splitlines()
            assert facts.color in lines[0] and facts.shape in text
            assert ("is a" if facts.count == 1 else COUNTS[facts.count - 1]) in text
            if facts.direction is None:
                assert len(lines) == 2 and facts.last_color in lines[1] and facts.color not in lines[1]
            else:
                assert len(lines) == 1 and facts.direction in text
            words = re.findall(r"[a-z]+|\.", " ".join(line.split(": ", 1)[1] for line in lines))
            assert set(words) <= set(VOCABULARY)
            assert all(re.match(r"00:\d\d-00:\d\d: ", line) for line in lines)


def test_a_clip_is_asked_about_in_different_ways(world):
    kinds = Counter((row.media.path, row.category) for row in world.rows("train"))
    assert set(kinds.values()) == {1}


def test_no_scene_is_shared_between_splits(world):
    scenes = [{asked.scene for asked in world._asked[split]} for split in SPLITS]
    assert [len(found) for found in scenes] == [12, 2, 5]
    assert len(set.union(*scenes)) == 19


def test_rows_follow_the_seed_and_a_split_does_not_depend_on_another_ones_size(tmp_path, world):
    same = ToyWorld(tmp_path, world.settings)
    assert same.rows("test") == world.rows("test")
    more = ToyWorld(tmp_path, toy_world.ToySettings(**{**SMALL, "train_clips": 40}))
    assert more.rows("test") == world.rows("test")
    other = ToyWorld(tmp_path, toy_world.ToySettings(**{**SMALL, "seed": 4}))
    assert other.rows("test") != world.rows("test")


def stamps(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*.mp4")}


def test_clips_are_rendered_once_and_again_only_where_they_are_missing_or_damaged(tmp_path):
    first = ToyWorld.prepare(tmp_path, **SMALL)
    before = stamps(first.root)
    assert ToyWorld.prepare(tmp_path, **SMALL).root == first.root and stamps(first.root) == before

    cut, gone = sorted(first.root.rglob("*.mp4"))[:2]
    content = cut.read_bytes()
    cut.write_bytes(content[:100])
    gone.unlink()
    ToyWorld.prepare(tmp_path, **SMALL)
    assert cut.read_bytes() == content and gone.exists()
    changed = {path for path, stamp in stamps(first.root).items() if before[path] != stamp}
    assert changed == {str(cut), str(gone)}


def test_a_stopped_rendering_goes_on_and_the_manifest_comes_last(tmp_path, monkeypatch):
    def stop_after_three(scenes, root):
        toy_world_write(dict(list(scenes.items())[:3]), root)
        raise KeyboardInterrupt

    toy_world_write = toy_world.write_clips
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(toy_world, "write_clips", stop_after_three)
        ToyWorld.prepare(tmp_path, **SMALL)
    assert not list(tmp_path.rglob("manifest.json"))
    before = stamps(tmp_path)
    world = ToyWorld.prepare(tmp_path, **SMALL)
    after = stamps(tmp_path)
    assert len(before) == 3 and before.items() <= after.items() and len(after) == 19
    manifest = json.loads((world.root / "manifest.json").read_text())
    assert len(manifest["bytes"]) == 19 and manifest["settings"]["train_clips"] == 12


def test_other_settings_have_a_folder_of_their_own(tmp_path):
    few = {"train_clips": 1, "validation_clips": 0, "test_clips": 0}
    roots = {ToyWorld.prepare(tmp_path, seed=seed, **few).root for seed in (0, 1)}
    assert len(roots) == 2 and all(root.parent == tmp_path for root in roots)


def test_order_blind_names_the_temporal_kinds(world):
    assert world.order_blind == {"direction": 0.5, "moved": 0.5, "first": 0.5, "last": 0.5, "before": 0.5}


def test_annotated_rows_keep_a_share_of_the_scarce_kinds(world):
    train = world.rows("train")
    assert world.annotated_rows() == train
    kept = world.annotated_rows(scarce_kinds=("moved", "before"), scarce_share=0.0)
    assert kept == [row for row in train if row.category not in ("moved", "before")]
    with pytest.raises(ValueError, match="'speed'"):
        world.annotated_rows(scarce_kinds=("speed",))
    with pytest.raises(ValueError, match="scarce_share=2"):
        world.annotated_rows(scarce_kinds=("moved",), scarce_share=2)


def reference(row) -> str:
    return f"<think>{row.rationale}</think><answer>{row.answer}</answer><|im_end|>"


def test_token_truth_marks_the_tokens_of_the_marked_words(world):
    tokenizer = build_toy_tokenizer()
    truth = world.token_truth(tokenizer)
    for row in world.rows("test"):
        ids = tokenizer(reference(row))["input_ids"]
        found = truth(row, ids)
        assert len(found.visual) == len(found.temporal) == len(ids)
        visual = [tokenizer.decode([token]).strip() for token, mark in zip(ids, found.visual, strict=True) if mark]
        temporal = [tokenizer.decode([token]).strip() for token, mark in zip(ids, found.temporal, strict=True) if mark]
        fact = {"first": 0, "last": 0, "before": 0, "shape": 3}.get(row.category, 2)
        word = row.rationale.strip(".").split()[fact]
        assert visual[0] == word
        assert temporal == ([word] if KINDS[row.category].temporal else [])


def test_token_truth_covers_all_pieces_of_a_word(world):
    tokenizer = build_toy_tokenizer(["it"])
    row = next(row for row in world.rows("test") if row.category == "color")
    ids = tokenizer(reference(row))["input_ids"]
    found = world.token_truth(tokenizer)(row, ids)
    marked = "".join(tokenizer.decode([token]) for token, mark in zip(ids, found.visual, strict=True) if mark)
    assert marked.strip() == row.answer


def test_token_truth_refuses_what_it_does_not_know(world):
    tokenizer = build_toy_tokenizer()
    truth = world.token_truth(tokenizer)
    row = world.rows("test")[0]
    with pytest.raises(ValueError, match="does not spell"):
        truth(row, tokenizer("<think>no</think>")["input_ids"])
    with pytest.raises(ValueError, match="not of this toy world"):
        truth(dataclasses.replace(row, id="elsewhere"), [])


@pytest.mark.parametrize("settings", [{"train_clips": 0}, {"test_clips": -1}, {"questions_per_clip": 0}])
def test_impossible_settings_are_refused_by_name(tmp_path, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        ToyWorld.prepare(tmp_path, **settings)


def test_an_unknown_split_is_refused(world):
    with pytest.raises(ValueError, match="'dev'"):
        world.rows("dev")
