"""A small evaluation without a model: rows, an encoder over real frame tensors, and an engine that reads the prompt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from ktr.data.media import Frames
from ktr.data.paths import MediaError
from ktr.data.rows import Media, Row
from ktr.evaluation.records import Record
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.rollout.engine import Completion, SamplingSettings


def make_row(row_id: str, *, path: str = "clip.mp4", answer: str = "A", category: str = "colour") -> Row:
    media = Media(kind="image" if path.endswith(".png") else "video", path=path) if path else None
    return Row(
        id=row_id,
        question="Which colour comes last?",
        media=media,
        problem_type="multiple choice",
        options=("A. red", "B. blue"),
        answer=answer,
        category=category,
    )


def make_frames(count: int = 8, *, kind: str = "video") -> Frames:
    """Frame t is filled with the value t."""
    pixels_T3HW = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).clone()
    return Frames(
        pixels_T3HW=pixels_T3HW,
        indices=tuple(10 * place for place in range(count)),
        times=tuple(0.5 * place for place in range(count)),
        second_per_grid=1.0,
        digest=f"digest-{count}",
        kind=kind,
        source_size=(4, 4),
        duration=4.0,
        total_frames=80,
        fps=20.0,
        backend="pyav",
        repeated=False,
        clamped=False,
    )


@dataclass
class FakeEncoder:
    """`missing.mp4` cannot be read; `short.mp4` has one temporal patch; images have one frame."""

    threads: set[int] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)
    reason: str = "missing"

    def load_frames(self, row: Row) -> Frames | None:
        self.threads.add(threading.get_ident())
        self.loaded.append(row.id)
        if row.media is None:
            return None
        if row.media.path == "missing.mp4":
            raise MediaError(row.media.path, self.reason, "no such file", row.id)
        if row.media.kind == "image":
            return make_frames(1, kind="image")
        return make_frames(2 if row.media.path == "short.mp4" else 8)

    def encode_frames(self, row: Row, frames: Frames | None) -> EncodedPrompt:
        ids_P = torch.tensor([1, 2, 3])
        return EncodedPrompt(
            row=row,
            text=row.question,
            input_ids_P=ids_P,
            position_ids_3P=ids_P.expand(3, -1),
            visual_mask_P=torch.zeros(3, dtype=torch.bool),
            modality=frames.kind if frames is not None else "text",
            frames=frames,
        )


@dataclass
class FakeEngine:
    """Answers `A` when the last frame it sees is the largest value, `B` when not, `nothing` without frames.

    Sampled replies carry a number that depends on the seed, the whole batch and the place in it.
    """

    calls: list[tuple[tuple[str, ...], int, int]] = field(default_factory=list)
    fail_after: int | None = None
    truncated: bool = False
    wording: str = "<think>look</think><answer>{}</answer>"

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        num_completions: int,
        settings: SamplingSettings,
        seed: int,
        progress: bool = False,
    ) -> list[list[Completion]]:
        if self.fail_after is not None and len(self.calls) >= self.fail_after:
            raise KeyboardInterrupt
        ids = tuple(prompt.row.id for prompt in prompts)
        self.calls.append((ids, num_completions, seed))
        groups = []
        for place, prompt in enumerate(prompts):
            noise = torch.Generator().manual_seed(seed + place + len(ids))
            draws = torch.randint(1000, (num_completions,), generator=noise).tolist()
            groups.append([self._reply(prompt, draw, settings) for draw in draws])
        return groups

    def _reply(self, prompt: EncodedPrompt, draw: int, settings: SamplingSettings) -> Completion:
        word = "nothing"
        if prompt.frames is not None:
            values_T = prompt.frames.pixels_T3HW[:, 0, 0, 0]
            word = "A" if int(values_T[-1]) == int(values_T.max()) else "B"
        text = self.wording.format(word) + ("" if settings.greedy else f" draw {draw}")
        return Completion(token_ids=(5, 6, 7), text=text, logps=None, truncated=self.truncated)


def make_record(row_id: str = "a", accuracy: float | None = 1.0, *, sample: int = 0, **more) -> Record:
    values = {
        "id": row_id, "view": "full", "sample": sample, "category": "colour", "problem_type": "free-form",
        "gold": "red", "reply": "<answer>red</answer>", "parsed": "red", "status": "ok", "accuracy": accuracy,
        "format": 1.0, "num_tokens": 3, "truncated": False, "frames": (0, 10), **more,
    }  # fmt: skip
    return Record(**values)


@pytest.fixture
def row() -> Callable[..., Row]:
    return make_row


@pytest.fixture
def frames() -> Callable[..., Frames]:
    return make_frames


@pytest.fixture
def record() -> Callable[..., Record]:
    return make_record


@pytest.fixture
def encoder() -> FakeEncoder:
    return FakeEncoder()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def greedy() -> SamplingSettings:
    return SamplingSettings(max_new_tokens=8, temperature=0.0)
