"""Evaluation during training: when it runs, what it leaves, and that training does not notice."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from ktr.evaluation.during import EvaluateEvery, subset
from ktr.evaluation.records import read_records
from ktr.evaluation.scoring import ReplyScorer
from ktr.training.run_folder import RunFolder
from ktr.training.tracker import Tracker


@pytest.fixture
def callback(engine, encoder, row, greedy, tmp_path):
    asked = (("a", "A", "x"), ("b", "B", "y"), ("c", "A", "x"))
    rows = [row(name, answer=gold, category=kind) for name, gold, kind in asked]
    return EvaluateEvery(
        lambda model: engine, encoder, rows, greedy, stage="rl", every_steps=2, folder=RunFolder(tmp_path),
        tracker=Tracker(), scorer=ReplyScorer(),
    )  # fmt: skip


def step(callback, number, model, rank=0, world=1):
    callback.on_step_end(
        SimpleNamespace(process_index=rank, world_size=world),
        SimpleNamespace(global_step=number, is_world_process_zero=rank == 0),
        None,
        model=model,
    )


def test_every_so_many_steps(callback, engine, tmp_path):
    model = torch.nn.Linear(1, 1).train()
    random = torch.get_rng_state()
    for number in range(1, 6):
        step(callback, number, model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), random)
    logged = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in logged] == [2, 4]
    assert logged[0]["eval/accuracy"] == pytest.approx(2 / 3)
    assert (logged[0]["eval/accuracy/x"], logged[0]["eval/accuracy/y"]) == (1.0, 0.0)
    assert [record.id for record in read_records(tmp_path / "records" / "rl_step_4.jsonl").records] == ["a", "b", "c"]


def test_a_resumed_run_may_repeat_a_step(callback, tmp_path):
    model = torch.nn.Linear(1, 1)
    step(callback, 2, model)
    step(callback, 2, model)
    assert len(read_records(tmp_path / "records" / "rl_step_2.jsonl").records) == 3


def test_ranks_share_the_rows(callback, engine, monkeypatch, tmp_path):
    shares = []

    def gather(own):
        shares.append(own)
        return [record for share in shares for record in share]

    monkeypatch.setattr("ktr.evaluation.during.gather_object", gather)
    model = torch.nn.Linear(1, 1)
    with pytest.raises(KeyError):  # The first rank alone does not have all rows.
        step(callback, 2, model, rank=1, world=2)
    step(callback, 2, model, rank=0, world=2)
    assert [ids for ids, _, _ in engine.calls] == [("b",), ("a", "c")]
    assert [record.id for record in read_records(tmp_path / "records" / "rl_step_2.jsonl").records] == ["a", "b", "c"]


def test_a_subset_is_spread_and_always_the_same():
    assert subset(range(100), 4) == [12, 37, 62, 87]
    assert subset(range(3), 4) == [0, 1, 2]
