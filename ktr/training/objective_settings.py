"""Which policy objective a run minimises, and its constants. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

OBJECTIVES = ("grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo")
KL_ESTIMATORS = ("k1", "k2", "k3")
NORMALIZES = ("completion", "selected")
# (low, high) of each paper; DAPO's and GSPO's differ in kind from the symmetric 0.2 of PPO
_PUBLISHED_CLIP = {"dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}


@dataclass(frozen=True)
class ObjectiveSettings:
    """One objective with its constants.

    Args:
        objective: one of ``OBJECTIVES``.
        epsilon_low: the ratio is clipped below at ``1 - epsilon_low``; None takes the objective's published value
            (dapo 0.2, gspo 3e-4, the others 0.2). cispo does not use it.
        epsilon_high: the ratio is clipped above at ``1 + epsilon_high``; None takes `epsilon_low` where that is set,
            else the published value (dapo 0.28, gspo 4e-4, the others 0.2). cispo does not use it.
        cispo_cap: largest importance weight of cispo, itself and not its distance from 1.
        beta: factor of the KL term; 0 needs no reference.
        kl_estimator: of ``d = ref_logp - logp``: k1 is ``-d``, k2 ``d^2 / 2``, k3 ``exp(d) - d - 1``. As a loss k1 has
            a gradient of mean zero and holds nothing; it is there for comparison.
        kl_clamp: d is clamped to ``[-kl_clamp, kl_clamp]`` (Video-R1's code: 10); None leaves it alone.
        normalize: whether the policy term's denominator counts all valid tokens of a ``completion`` or only the
            ``selected`` ones, those of weight above 0. dr_grpo's denominator is a constant and counts neither.
        mask_kl: whether the weights multiply the KL term too. Where they do not, the KL term keeps the plain
            objective's denominator, all valid tokens.
        max_completion_length: the generation limit, in tokens; dr_grpo's constant.

    Raises:
        ValueError: for an unknown choice or a number out of range; the message names the field.
    """

    objective: str = "grpo"
    epsilon_low: float | None = None
    epsilon_high: float | None = None
    cispo_cap: float = 5.0
    beta: float = 0.04
    kl_estimator: str = "k3"
    kl_clamp: float | None = None
    normalize: str = "completion"
    mask_kl: bool = True
    max_completion_length: int | None = None

    def __post_init__(self) -> None:
        for field, known in (
            ("objective", OBJECTIVES),
            ("kl_estimator", KL_ESTIMATORS),
            ("normalize", NORMALIZES),
        ):
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"{field} must be one of {', '.join(known)}; got {value!r}")
        for field in ("epsilon_low", "epsilon_high", "beta"):
            value = getattr(self, field)
            if value is not None and value < 0:
                raise ValueError(f"{field} must not be negative; got {value}")
        for field in ("cispo_cap", "kl_clamp", "max_completion_length"):
            value = getattr(self, field)
            if value is not None and value <= 0:
                raise ValueError(f"{field} must be above 0; got {value}")
        if self.objective == "dr_grpo" and self.max_completion_length is None:
            raise ValueError("objective dr_grpo divides by max_completion_length: set it to the generation limit")

    @property
    def clip(self) -> tuple[float, float]:
        """The epsilons in force, (low, high)."""
        low, high = _PUBLISHED_CLIP.get(self.objective, (0.2, 0.2))
        if self.epsilon_low is not None:
            low = high = self.epsilon_low
        return low, high if self.epsilon_high is None else self.epsilon_high
