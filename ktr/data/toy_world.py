"""The toy world on disk: clips of coloured shapes as real mp4 files, rows about them, and what is known of each token.

Everything follows from the settings: the same settings give the same scenes, questions and files. Clips lie in a folder
named by the settings, so that changed settings never meet old clips, and a stopped rendering goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from ktr.data.prompts import clock
from ktr.data.rows import Media, Row
from ktr.data.toy_clips import DURATION, write_clips
from ktr.data.toy_scenes import (
    KINDS,
    Question,
    Scene,
    answer_word,
    events,
    rationale,
    read_facts,
    sample_questions,
    sample_scene,
    word_truth,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SPLITS = ("train", "validation", "test")
# Part of the folder's name: raise it whenever the same settings would give other scenes or other pixels.
VERSION = 2
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class ToySettings:
    """How many clips each split has, how many questions are asked about each, and the seed of them all."""

    train_clips: int = 800
    validation_clips: int = 50
    test_clips: int = 700
    questions_per_clip: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("train_clips", 1), ("validation_clips", 0), ("test_clips", 0), ("questions_per_clip", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")


@dataclass(frozen=True)
class TokenTruth:
    """For each token of a reference: does it rest on the video, on the order of its frames?"""

    visual: tuple[bool, ...]
    temporal: tuple[bool, ...]


@dataclass(frozen=True)
class _Asked:
    """A row with the scene and the question it was made from."""

    row: Row
    scene: Scene
    question: Question


class ToyWorld:
    """Rows of the toy world whose clips lie under ``root``.

    Example::

        world = ToyWorld.prepare("outputs/toy_world", train_clips=200)
        rows = world.rows("train")
    """

    def __init__(self, root: Path, settings: ToySettings) -> None:
        self.root = root
        self.settings = settings

    @classmethod
    def prepare(cls, cache: str | Path, **settings: int) -> ToyWorld:
        """The world of these ``ToySettings``; clips missing from its folder in ``cache`` are rendered first.

        Raises:
            ValueError: a setting is out of range.
        """
        chosen = ToySettings(**settings)
        text = json.dumps({"version": VERSION, **asdict(chosen)}, sort_keys=True)
        world = cls(Path(cache) / hashlib.sha256(text.encode()).hexdigest()[:12], chosen)
        world._render(text)
        return world

    def _render(self, settings_text: str) -> None:
        manifest = self.root / "manifest.json"
        asked = [asked for split in self._asked.values() for asked in split]
        scenes = {one.row.media.path: one.scene for one in asked if one.row.media}
        if manifest.exists():
            sizes = json.loads(manifest.read_text(encoding="utf-8"))["bytes"]
            damaged = [name for name in scenes if _size(self.root / name) != sizes.get(name)]
            if not damaged:
                return
            for name in damaged:
                (self.root / name).unlink(missing_ok=True)
        write_clips(scenes, self.root)
        sizes = {name: _size(self.root / name) for name in scenes}
        unfinished = manifest.with_name(f".{manifest.name}.{os.getpid()}.tmp")
        content = {"settings": json.loads(settings_text), "bytes": sizes}
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, manifest)

    @cached_property
    def _asked(self) -> dict[str, list[_Asked]]:
        """Rows of each split with their sources; no scene occurs twice, in one split or in two."""
        seen: set[Scene] = set()
        return {split: self._ask(split, seen) for split in SPLITS}

    def _ask(self, split: str, seen: set[Scene]) -> list[_Asked]:
        asked = []
        for index in range(getattr(self.settings, f"{split}_clips")):
            rng = Random(f"{self.settings.seed}/{split}/{index}")
            scene = sample_scene(rng)
            while scene in seen:
                scene = sample_scene(rng)
            seen.add(scene)
            for question in sample_questions(scene, self.settings.questions_per_clip, rng):
                asked.append(_Asked(_make_row(f"{split}-{index:05}", scene, question), scene, question))
        return asked

    def rows(self, split: str) -> list[Row]:
        """The rows of ``train``, ``validation`` or ``test``, clip by clip.

        Raises:
            ValueError: there is no such split.
        """
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r} of the toy world: choose one of {', '.join(SPLITS)}")
        return [asked.row for asked in self._asked[split]]

    def annotated_rows(self, *, scarce_kinds: Sequence[str] = (), scarce_share: float = 1.0) -> list[Row]:
        """Training rows for the warm-up, in which some kinds of question are scarce.

        Chains of thought are dear, so real sets of them cover some skills thinly; what is left to learn, reinforcement
        can learn from answers alone. Rows of `scarce_kinds` are kept at the given share, chosen by the world's seed.

        Raises:
            ValueError: a kind is unknown, or the share is not within 0 and 1.
        """
        unknown = [kind for kind in scarce_kinds if kind not in KINDS]
        if unknown:
            raise ValueError(f"unknown kind of question {unknown[0]!r}: choose among {', '.join(KINDS)}")
        if not 0 <= scarce_share <= 1:
            raise ValueError(f"scarce_share={scarce_share} must be within 0 and 1")
        rng = Random(f"{self.settings.seed}/annotated")
        kept = [(row, rng.random() < scarce_share) for row in self.rows("train")]
        return [row for row, chosen in kept if chosen or row.category not in scarce_kinds]

    @property
    def order_blind(self) -> dict[str, float]:
        """For each temporal kind of question, the accuracy of the best answer that does not know the frames' order."""
        return {name: kind.order_blind for name, kind in KINDS.items() if kind.temporal}

    def token_truth(self, tokenizer: PreTrainedTokenizerBase) -> Callable[[Row, Sequence[int]], TokenTruth]:
        """A function from a row and the token ids of its reference to what each token rests on.

        A token that holds part of several words rests on what any of them rests on. The function raises ``ValueError``
        when the row is not of this world or the ids do not spell its rationale and answer.
        """
        known = {asked.row.id: asked for split in self._asked.values() for asked in split}

        def truth(row: Row, token_ids: Sequence[int]) -> TokenTruth:
            if row.id not in known:
                raise ValueError(f"row {row.id!r} is not of this toy world")
            found = word_truth(known[row.id].scene, known[row.id].question)
            spans = _token_spans(tokenizer, token_ids)
            text = "".join(tokenizer.decode([token]) for token in token_ids)
            pieces = _WORD.finditer(text)
            words = [next((piece.span() for piece in pieces if piece.group() == word), None) for word in found.words]
            if None in words:
                raise ValueError(f"row {row.id!r}: {text!r} does not spell the reference {' '.join(found.words)!r}")
            return TokenTruth(_touched(spans, words, found.visual), _touched(spans, words, found.temporal))

        return truth


def _make_row(clip: str, scene: Scene, question: Question) -> Row:
    facts = read_facts(scene)
    assert facts is not None, "a sampled scene is in an order that can be described"
    return Row(
        id=f"{clip}-{question.kind}",
        question=question.text,
        media=Media("video", f"clips/{clip}.mp4"),
        problem_type=KINDS[question.kind].problem_type,
        options=(),
        answer=answer_word(question, facts),
        rationale=rationale(scene, question),
        duration=DURATION,
        source="toy",
        category=question.kind,
        captions="\n".join(
            f"{clock(start * DURATION, DURATION)}-{clock(end * DURATION, DURATION)}: {text}"
            for start, end, text in events(scene)
        ),
    )


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


Span = tuple[int, int]


def _token_spans(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[Span]:
    spans, place = [], 0
    for token in token_ids:
        length = len(tokenizer.decode([token]))
        spans.append((place, place + length))
        place += length
    return spans


def _touched(tokens: Sequence[Span], words: Sequence[Span | None], marked: Sequence[bool]) -> tuple[bool, ...]:
    """For each token: does it share a character with a marked word?"""
    chosen = [word for word, mark in zip(words, marked, strict=True) if mark and word]
    return tuple(any(start < word_end and word_start < end for word_start, word_end in chosen) for start, end in tokens)
