"""One rank of the distributed tests: trains every scenario and saves what this rank computed.

torchrun --nproc-per-node 2 distributed_worker.py CHECKPOINT ROOT SCENARIOS.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from trainer_cases import run_scenario


def main(checkpoint: Path, root: Path, scenarios: Path) -> None:
    torch.set_num_threads(1)
    state = PartialState(cpu=True)
    for name, options in json.loads(scenarios.read_text()).items():
        results = run_scenario(checkpoint, root, name, options, is_main=state.is_main_process)
        torch.save(results, root / f"{name}-{state.process_index}.pt")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
