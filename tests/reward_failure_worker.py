"""One of two ranks whose rewards fail on the second rank only; writes how the step ended.

torchrun --nproc-per-node 2 reward_failure_worker.py ROOT
"""

from __future__ import annotations

import sys
from pathlib import Path

from accelerate import PartialState
from rollout_cases import SeededEngine, prompts_of

from ktr.rewards.runner import RewardFailure, RewardRunner
from ktr.rollout.engine import SamplingSettings
from ktr.training.rollouts import GroupSampler


def main(root: Path) -> None:
    state = PartialState(cpu=True)

    def reward(completions, **columns):
        if state.process_index == 1:
            raise RuntimeError("only here")
        return [1.0 for _ in completions]

    sampler = GroupSampler(
        SeededEngine(), RewardRunner({"mine": (reward, 1.0)}), SamplingSettings(4), num_completions=2,
        rank=state.process_index,
    )  # fmt: skip
    try:
        sampler(prompts_of("a"), 0)
        ended = "no failure"
    except RewardFailure as error:
        ended = str(error)
    (root / f"rank-{state.process_index}.txt").write_text(ended, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
