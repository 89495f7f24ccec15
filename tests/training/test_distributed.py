"""Two ranks under gloo take the steps of one process over the same groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from trainer_cases import assert_same_gradients, make_rows, read_lines, run_scenario, without_times

pytestmark = pytest.mark.timeout(330)  # A hang ends; a busy machine does not fail.

ROOT = Path(__file__).resolve().parents[2]
MIXED = ["image", "video", "text", "video"]
STEPS = {
    "max_steps": 2,
    "groups_per_step": 1,
    "group_size": 3,
    "learning_rate": 0.05,
    "beta": 0.1,
    "lr_scheduler": "constant",
}
SCENARIOS = {
    "mixed": {"kinds": MIXED, "trainer": STEPS},
    "pieces": {
        "kinds": MIXED,
        "trainer": {**STEPS, "objective": "dapo", "groups_per_step": 2, "gradient_accumulation": 2, "max_steps": 1},
        "key_tokens": {"top_k": 0.4, "normalize": "selected", "mask_kl": False},
        "max_packed_tokens": 32,
        "checkpointing": True,
    },
    "one-rank-flat": {
        "kinds": ["text", "video"], "flat": ["row-1"], "zero_variance": "mask", "checkpointing": True, "trainer": STEPS,
    },
    "frozen": {"kinds": ["text", "video"], "freeze_vision": True, "trainer": {**STEPS, "updates_per_batch": 2}},
    "sft": {"kinds": MIXED, "stage": "sft", "trainer": {"batch_size": 2, "gradient_accumulation": 2, "max_steps": 2}},
    "sft-text-rank": {
        "kinds": ["text", "video"], "stage": "sft", "checkpointing": True, "trainer": {"batch_size": 1, "max_steps": 3},
    },
    "blank": {"kinds": MIXED, "mixed_media": "blank", "trainer": STEPS},
    "blank-sft": {
        "kinds": ["image", "video", "text", "text"], "stage": "sft", "mixed_media": "blank",
        "trainer": {"batch_size": 1, "max_steps": 2, "weight_decay": 0.0},
    },
    "homogeneous-sft": {
        "kinds": ["image", "video", "image", "video"], "stage": "sft", "mixed_media": "homogeneous",
        "trainer": {"batch_size": 1, "max_steps": 2},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def ranks(checkpoints, root):
    """Results of both ranks by scenario, from one launch (importing TRL costs seconds)."""
    for options in SCENARIOS.values():
        make_rows(root, options["kinds"])
    scenarios = root / "scenarios.json"
    scenarios.write_text(json.dumps(SCENARIOS))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(ROOT / "tests" / "distributed_worker.py"), str(checkpoints["qwen2_5_vl"]), str(root), str(scenarios),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: [torch.load(root / f"{name}-{rank}.pt") for rank in range(2)] for name in SCENARIOS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_ranks_take_the_steps_of_one(checkpoints, root, ranks, name):
    options = dict(SCENARIOS[name])
    doubled = "batch_size" if "stage" in options else "groups_per_step"
    options["trainer"] = {**options["trainer"], doubled: 2 * options["trainer"][doubled]}
    if options.get("mixed_media") == "blank":
        options["mixed_media"] = "free"  # Blank media are to change nothing.
    alone = run_scenario(checkpoints["qwen2_5_vl"], root, f"{name}-alone", options)
    for rank in ranks[name]:
        assert len(rank["gradients"]) == len(alone["gradients"])
        for found, expected in zip(rank["gradients"], alone["gradients"], strict=True):
            if "mixed_media" in options:  # Blank media give the tower gradients of 0 where no row has media.
                expected = {key: expected.get(key, torch.zeros_like(found[key])) for key in found}
            assert_same_gradients(found, expected, 1e-3)
        for parameter, weights in alone["weights"].items():
            torch.testing.assert_close(rank["weights"][parameter], weights, atol=2e-6, rtol=1e-5)
    metrics = without_times(read_lines(root / name / "metrics.jsonl"))
    expected_metrics = without_times(read_lines(root / f"{name}-alone" / "metrics.jsonl"))
    assert len(metrics) == len(expected_metrics)
    for found, expected in zip(metrics, expected_metrics, strict=True):
        assert found.keys() == expected.keys()
        for key in expected.keys() - {"stage", "total_flos"}:
            assert found[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-5), key
    if "stage" in options:
        return
    rows, expected_rows = (read_lines(root / run / "completions.jsonl") for run in (name, f"{name}-alone"))
    assert sorted(rows, key=str) == sorted(expected_rows, key=str)


def test_ranks_took_different_numbers_of_forwards(ranks):
    first, second = ranks["pieces"]
    assert first["forwards"] != second["forwards"]
