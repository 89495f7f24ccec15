"""The interface of every rollout engine and the plain data it takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ktr.models.encoded_prompt import EncodedPrompt


@dataclass(frozen=True)
class SamplingSettings:
    """How tokens are drawn.

    Args:
        max_new_tokens: a completion that has not ended by then is truncated.
        temperature: logits are divided by it; 0 takes the most likely token.
        top_p: draw from the smallest set of tokens that holds this much probability; 1 draws from all.
        top_k: draw from this many most likely tokens; 0 draws from all.

    Raises:
        ValueError: a value is out of its range.

    Example: `SamplingSettings(max_new_tokens=768, temperature=1.0, top_p=0.95)`
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens={self.max_new_tokens} must be at least 1")
        if self.temperature < 0:
            raise ValueError(f"temperature={self.temperature} must not be negative (0 is greedy)")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be above 0 and at most 1 (1 draws from all tokens)")
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k} must not be negative (0 draws from all tokens)")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Completion:
    """One sampled completion.

    Args:
        token_ids: sampled tokens, the end token included where one was drawn.
        text: decoded without special tokens.
        logps: log-prob of each token under the model at the sampling temperature (1 for greedy), over the whole
            vocabulary, before top-p and top-k cut it: what a scoring pass at that temperature gives. None where the
            engine does not know them.
        truncated: the length limit was hit before an end token.
    """

    token_ids: tuple[int, ...]
    text: str
    logps: tuple[float, ...] | None
    truncated: bool


@runtime_checkable
class RolloutEngine(Protocol):
    """Samples groups of completions."""

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        num_completions: int,
        settings: SamplingSettings,
        seed: int,
        progress: bool = False,
    ) -> list[list[Completion]]:
        """`num_completions` completions of every prompt, in the prompts' order.

        The same seed and prompts give the same completions; the completions of a group are drawn independently.

        Raises:
            ValueError: a prompt and its completions do not fit the model.
        """
        ...
