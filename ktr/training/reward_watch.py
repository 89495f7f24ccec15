"""Warnings about rewards that have stopped teaching: the same on every completion for many steps, or silent."""

from __future__ import annotations

import logging
from typing import Any

from accelerate.utils import gather_object

from ktr.rewards.alarms import ConstantRewardAlarm
from ktr.rewards.runner import RewardTable

logger = logging.getLogger(__name__)


class RewardWatch:
    """Looks at every step's rewards over all ranks.

    Args:
        steps: a component that was 0, or 1, on every completion of so many steps in a row is warned about.
        is_main: whether this process says so; all keep count.
    """

    def __init__(self, steps: int, *, is_main: bool = True) -> None:
        self.alarm = ConstantRewardAlarm(steps)
        self.is_main = is_main
        self._silent: set[str] = set()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON holds it."""
        return {"streaks": self.alarm.streaks(), "silent": sorted(self._silent)}

    def load_state(self, state: dict[str, Any]) -> None:
        self.alarm.load_streaks(state["streaks"])
        self._silent = set(state["silent"])

    def __call__(self, table: RewardTable) -> dict[str, float]:
        """Takes a step's scores; metrics by name: for how many steps each component has been constant. Collective."""
        of_ranks = gather_object([table.by_component])
        metrics = {}
        for name in table.by_component:
            scores = [score for of_rank in of_ranks for score in of_rank[name]]
            message = self.alarm.update(name, scores)
            if message is not None and self.is_main:
                logger.warning("%s: it teaches nothing; look at completions.jsonl", message)
            if name not in self._silent and all(score is None for score in scores):
                self._silent.add(name)
                if self.is_main:
                    logger.warning("reward %s gave no score to any completion of a step", name)
            metrics[f"rewards/{name}/constant_steps"] = float(self.alarm.streak(name))
        return metrics
