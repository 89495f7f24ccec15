"""A run as it could have been: records of three models, training metrics, and one completion."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from ktr.evaluation.records import Record
from ktr.reporting.tokens import FrameImage, TokenPage, frame_images

CHANCES = {
    "colour": (0.18, 0.86, 0.93), "shape": (0.30, 0.74, 0.78), "count": (0.22, 0.58, 0.66),
    "direction": (0.24, 0.81, 0.90), "which first": (0.28, 0.55, 0.64), "what changed": (0.12, 0.47, 0.58),
}  # fmt: skip
ORDER_BLIND = {"direction": 0.25, "which first": 0.5, "what changed": 0.34}


REASONING = (
    "<think> the| clip| shows| a| red| square| .| it| starts| left| and| moves| right| ,| then| a| blue| disc|"
    " appears| below| it| .\n|so| the| red| square| came| first| .|</think>|\n|<answer>|red|</answer>"
)


def make_record(row_id: str, accuracy: float | None, *, category: str = "colour", view: str = "full", **more) -> Record:
    values = {
        "id": row_id, "view": view, "sample": 0, "category": category, "problem_type": "free-form", "gold": "red",
        "reply": "", "parsed": "red", "status": "ok", "accuracy": accuracy, "format": 1.0, "num_tokens": 24,
        "truncated": False, **more,
    }  # fmt: skip
    return Record(**values)


def stage_records(place: int, *, rows_per_kind: int = 60, shuffled: bool = False) -> list[Record]:
    rng = random.Random(place + 10 * shuffled)
    records = []
    for kind, chances in CHANCES.items():
        chance = min(chances[place], ORDER_BLIND.get(kind, 1)) if shuffled else chances[place]
        for number in range(rows_per_kind):
            row_id = f"{kind}-{number}"
            right = float(rng.random() < chance)
            records.append(make_record(row_id, right, category=kind, view="shuffled" if shuffled else "full"))
    return records


@pytest.fixture
def full() -> dict[str, list[Record]]:
    return {stage: stage_records(place) for place, stage in enumerate(("base", "sft", "rl"))}


@pytest.fixture
def shuffled() -> dict[str, list[Record]]:
    return {stage: stage_records(place, shuffled=True) for place, stage in enumerate(("base", "sft", "rl"))}


@pytest.fixture
def order_blind() -> dict[str, float]:
    return ORDER_BLIND


@pytest.fixture
def record() -> Callable[..., Record]:
    return make_record


@pytest.fixture
def token_page() -> Callable[..., TokenPage]:
    return make_token_page


@pytest.fixture
def metric_rows() -> list[dict[str, float | str]]:
    return make_metric_rows()


def make_metric_rows() -> list[dict[str, float | str]]:
    rng = random.Random(0)
    rows: list[dict[str, float | str]] = [
        {"stage": "sft", "step": step, "loss": 3.2 * math.exp(-step / 90) + 0.2 + rng.gauss(0, 0.03),
         "mean_token_accuracy": 1 - 0.8 * math.exp(-step / 110), "learning_rate": 2e-3 * (1 - step / 400)}
        for step in range(10, 400, 10)
    ]  # fmt: skip
    for step in range(1, 121):
        reward = 1.5 + 0.25 * (1 - math.exp(-step / 50)) + rng.gauss(0, 0.06)
        rows.append({
            "stage": "rl", "step": step, "reward": reward, "reward_std": 0.4 + rng.gauss(0, 0.03),
            "rewards/accuracy/mean": reward - 0.98, "rewards/format/mean": 0.98, "kl": 0.0004 * step, "loss": -0.01,
            "entropy": 0.5 - step / 600, "completions/mean_length": 30 + rng.gauss(0, 1), "completions/max_length": 41,
            "key_tokens/kept/union": 0.43 + rng.gauss(0, 0.01), "key_tokens/kept/entropy": 0.21,
            "key_tokens/kept/visual": 0.2, "key_tokens/kept/temporal": 0.19, "grad_norm": 0.6 + rng.random() / 5,
        })  # fmt: skip
    return rows


def make_frames(count: int = 8, side: int = 56) -> list[FrameImage]:
    pixels_T3HW = np.full((count, 3, side, side), 24, dtype=np.uint8)
    for place in range(count):
        left = 4 + place * (side - 20) // count
        pixels_T3HW[place, 0, 18:34, left : left + 16] = 220
    return frame_images(pixels_T3HW, [place * 0.25 for place in range(count)])


def make_token_page(words: list[str] | None = None, *, seed: int = 0, **more) -> TokenPage:
    words = words or [*REASONING.split("|"), "<|im_end|>"]
    rng = random.Random(seed)
    scores = {name: [rng.expovariate(3) for _ in words] for name in ("entropy", "visual", "temporal")}
    top = {name: sorted(values)[-max(1, len(words) // 5)] for name, values in scores.items()}
    selected = {name: [value >= top[name] for value in values] for name, values in scores.items()}
    weights = [float(any(column)) for column in zip(*selected.values(), strict=True)]
    values = {
        "heading": "After RL, which first", "prompt": "Which shape came first?\nAnswer with its colour.",
        "tokens": words, "scores": scores, "selected": selected, "weights": weights, "frames": make_frames(),
        "gold": "red", "answer": "red", "rewards": {"accuracy": 1.0, "format": 1.0, "total": 2.0}, **more,
    }  # fmt: skip
    return TokenPage(**values)
