"""Noticing rewards that have stopped telling completions apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class ConstantRewardAlarm:
    """Notices a component whose scores are all 0 or all 1 for `steps` updates in a row.

    >>> alarm = ConstantRewardAlarm(steps=2)
    >>> alarm.update("format", [1.0, 1.0]), alarm.update("format", [1.0])
    (None, 'reward format was 1 on every completion for 2 steps')
    """

    def __init__(self, steps: int = 50) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, not {steps}")
        self.steps = steps
        self._streaks: dict[str, tuple[float, int]] = {}

    def update(self, name: str, scores: Iterable[float | None]) -> str | None:
        """Take one step's scores; the alarm's text when the streak reaches `steps`, once per streak.

        A step on which everything abstained leaves the streak as it is.
        """
        values = {score for score in scores if score is not None}
        if not values:
            return None
        if values not in ({0.0}, {1.0}):
            self._streaks.pop(name, None)
            return None
        (value,) = values
        previous, length = self._streaks.get(name, (value, 0))
        length = length + 1 if previous == value else 1
        self._streaks[name] = (value, length)
        return f"reward {name} was {value:g} on every completion for {length} steps" if length == self.steps else None

    def streaks(self) -> dict[str, list[float]]:
        """Value and length of every component's streak, for a checkpoint."""
        return {name: list(streak) for name, streak in self._streaks.items()}

    def load_streaks(self, streaks: Mapping[str, Sequence[float]]) -> None:
        """Goes on from `streaks`."""
        self._streaks = {name: (float(value), int(length)) for name, (value, length) in streaks.items()}

    def streak(self, name: str) -> int:
        """For how many steps in a row the component has been all 0 or all 1."""
        return self._streaks.get(name, (0.0, 0))[1]
