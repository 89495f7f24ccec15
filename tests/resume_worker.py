"""One rank of the two-rank resume tests: trains SFT and RL unbroken, and cut off in the middle and gone on with.

torchrun --nproc-per-node 2 resume_worker.py CHECKPOINT ROOT
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from resume_cases import Draws, train, weights
from trainer_cases import make_rows, real_rollout

KINDS = ("video", "image", "text", "video", "text")
SHARED = {"max_steps": 20, "save_steps": 10, "lr_scheduler": "cosine", "max_grad_norm": 1.0}


def main(checkpoint: Path, root: Path) -> None:
    torch.set_num_threads(1)
    process = PartialState(cpu=True)
    rows = make_rows(root, KINDS)
    options: dict[str, dict[str, Any]] = {
        "sft": {"trainer": {**SHARED, "batch_size": 1}},
        "rl": {
            "trainer": {**SHARED, "groups_per_step": 1, "group_size": 2, "updates_per_batch": 2},
            "rollout": real_rollout(checkpoint),
        },
    }
    for stage, own in options.items():
        for kind, ends in (("whole", [None]), ("broken", [10, None])):
            for after in ends:
                seed = process.process_index + (100 if after is None and kind == "broken" else 0)
                random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
                draws = Draws()
                trainer = train(
                    stage, checkpoint, root, rows, f"two-{stage}-{kind}", break_after=after, callbacks=[draws],
                    is_main=process.is_main_process, **{**own, "trainer": dict(own["trainer"])},
                )  # fmt: skip
                process.wait_for_everyone()
            found = {"weights": weights(trainer), "drawn": draws.drawn}
            torch.save(found, root / f"two-{stage}-{kind}-{process.process_index}.pt")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
