"""Decoding ahead of training: hidden behind the steps where workers keep up, bounded, and once a clip."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from trainer_cases import make_rows, make_sft_trainer, read_lines
from transformers import TrainerCallback

from ktr.config.compose import compose
from ktr.config.overrides import quote
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.data.prefetch import BATCHES_AHEAD
from ktr.models import prompt_encoder
from ktr.training import pipeline

DECODING = 0.3
STEP = 0.5


@pytest.fixture
def decoded(tmp_path, monkeypatch):
    """A decoder that takes its time and notes every file it reads, in whatever process."""
    record = tmp_path / "decoded"
    record.touch()
    load_frames = prompt_encoder.load_frames

    def slow(path, *args, **settings):
        time.sleep(DECODING)
        with record.open("a") as file:
            file.write(f"{Path(path).name} {os.getpid()}\n")
        return load_frames(path, *args, **settings)

    monkeypatch.setattr(prompt_encoder, "load_frames", slow)
    return record


class Slow(TrainerCallback):
    """Makes every step last `STEP` seconds longer; notes how much was decoded by then."""

    def __init__(self, record: Path) -> None:
        self.record = record
        self.decoded: list[int] = []

    def on_step_end(self, *args, **kwargs):
        time.sleep(STEP)
        self.decoded.append(len(self.record.read_text().splitlines()))


@pytest.mark.slow
def test_workers_that_keep_up_hide_a_slow_decoder(checkpoints, tmp_path, decoded):
    rows = make_rows(tmp_path, ["video"] * 9)
    share, made = {}, {}
    for workers in (0, 1):
        slow = Slow(decoded)
        decoded.write_text("")
        trainer = make_sft_trainer(
            checkpoints["qwen2_5_vl"], tmp_path, rows, run=f"run-{workers}", workers=workers, callbacks=[slow],
            trainer={"batch_size": 1, "max_steps": 9},
        )  # fmt: skip
        trainer.train()
        lines = read_lines(tmp_path / f"run-{workers}" / "metrics.jsonl")
        later = [line["data/wait_share"] for line in lines if "loss" in line][3:]
        share[workers], made[workers] = sum(later) / len(later), slow.decoded
    assert share[0] > 0.25
    assert share[1] < share[0] / 10
    # While a step trains, the worker makes what it may hold ready and stops; accelerate holds one batch more.
    ahead = [count - step for step, count in enumerate(made[1], start=1)]
    assert max(ahead) <= BATCHES_AHEAD + 1


def test_rows_that_may_be_skipped_are_decoded_once_with_workers(tmp_path, decoded, monkeypatch):
    monkeypatch.setattr(f"{__name__}.DECODING", 0.0)
    rows = make_rows(tmp_path, ["video"] * 4)
    path = tmp_path / "rows.jsonl"
    records = [
        {"id": row.id, "question": row.question, "answer": "red", "rationale": "r", "video": row.media.path}
        for row in rows
    ]
    (tmp_path / "broken.mp4").write_text("no video")
    records.append({"id": "broken", "question": "q", "answer": "red", "rationale": "r", "video": "broken.mp4"})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    config = validate(
        compose(
            "train",
            [
                "debug=fast", "data=jsonl", f"data.path={quote(str(path))}", f"data.media_root={quote(str(tmp_path))}",
                "stages=[sft]", "sft.batch_size=1", "sft.max_steps=8", "data.on_error=skip", "data.workers=2",
                f"output_dir={quote(str(tmp_path / 'out'))}",
            ],
        ),
        TrainConfig,
    )  # fmt: skip
    folder = pipeline.run(config, tmp_path / "out" / "run").parent
    files = [line.split()[0] for line in decoded.read_text().splitlines()]
    assert sorted(files) == ["0.mp4", "1.mp4", "2.mp4", "3.mp4", "broken.mp4"]
    assert [line["id"] for line in read_lines(folder / "skipped.jsonl")] == ["broken"]
