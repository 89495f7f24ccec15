"""Under ZeRO-3 two ranks take the steps of one process, whatever kinds of media each of them has.

Every module's weights are gathered by both ranks together there, so a rank that runs the vision tower, or any forward,
more often than the other would wait for ever.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from trainer_cases import make_rows, run_scenario

pytest.importorskip("deepspeed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # The first run on a machine compiles a helper.

ROOT = Path(__file__).resolve().parents[2]
ZERO3 = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": False,
        "contiguous_gradients": True,
        "stage3_param_persistence_threshold": 0,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
}
SFT = {"stage": "sft", "trainer": {"batch_size": 1, "max_steps": 2, "learning_rate": 0.05, "weight_decay": 0.0}}
GRPO = {
    "trainer": {
        "max_steps": 2, "groups_per_step": 1, "group_size": 3, "learning_rate": 0.05, "beta": 0.1,
        "lr_scheduler": "constant", "weight_decay": 0.0,
    },
}  # fmt: skip
SCENARIOS = {
    "sft-image-video": {"kinds": ["image", "video", "image", "video"], **SFT},
    "sft-text-video": {"kinds": ["text", "video", "text", "video"], **SFT},
    "sft-homogeneous": {"kinds": ["image", "video", "image", "video"], "mixed_media": "homogeneous", **SFT},
    "grpo-homogeneous": {"kinds": ["image", "video", "image", "video"], "mixed_media": "homogeneous", **GRPO},
    "grpo-image-video": {"kinds": ["image", "video", "image", "video"], **GRPO},
    "grpo-text-video": {"kinds": ["text", "video", "text", "video"], "max_packed_tokens": 32, **GRPO},
    "grpo-one-rank-flat": {
        "kinds": ["text", "video"], "flat": ["row-1"], "zero_variance": "mask", "checkpointing": True, **GRPO,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("zero3")


@pytest.fixture(scope="module")
def ranks(checkpoints, root):
    for options in SCENARIOS.values():
        make_rows(root, options["kinds"])
    settings = root / "zero3.json"
    settings.write_text(json.dumps(ZERO3))
    scenarios = root / "scenarios.json"
    scenarios.write_text(json.dumps({n: {**o, "deepspeed": str(settings)} for n, o in SCENARIOS.items()}))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(ROOT / "tests" / "distributed_worker.py"), str(checkpoints["qwen2_5_vl"]), str(root), str(scenarios),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-6000:]
    return {name: [torch.load(root / f"{name}-{rank}.pt") for rank in range(2)] for name in SCENARIOS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_ranks_take_the_steps_of_one(checkpoints, root, ranks, name):
    options = {**SCENARIOS[name], "trainer": dict(SCENARIOS[name]["trainer"])}
    options["trainer"]["batch_size" if "stage" in options else "groups_per_step"] *= 2
    alone = run_scenario(checkpoints["qwen2_5_vl"], root, f"{name}-alone", options)
    start = run_scenario(
        checkpoints["qwen2_5_vl"], root, f"{name}-start",
        {**options, "trainer": {**options["trainer"], "learning_rate": 1e-30}},
    )["weights"]  # fmt: skip
    for rank in ranks[name]:
        assert rank["engine"] == "DeepSpeedEngine"
        moved = {key: weights - start[key] for key, weights in alone["weights"].items()}
        largest = max(float(change.abs().max()) for change in moved.values())
        assert largest > 1e-3
        for key, change in moved.items():
            # SGD: the change of a weight is its gradients.
            torch.testing.assert_close(rank["weights"][key] - start[key], change, atol=1e-3 * largest, rtol=1e-3)
