"""Schemas of the groups `reward`, `ktr` and `trainer`: what is rewarded, which tokens learn, how steps are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ktr.config.fields import ConfigError, Node, choice, number

SIGNALS = ("entropy", "visual", "temporal")


@dataclass
class TemporalRewardConfig(Node):
    """T-GRPO's bonus (Video-R1, arXiv 2503.21776): right replies earn `alpha` where the mean accuracy of their group is
    at least `mu` times that of completions sampled on shuffled frames. Right is an accuracy above `threshold`.

    Example::

        python train.py reward=t_grpo reward.temporal.alpha=0.2 reward.temporal.mu=1.0
    """

    alpha: float = number(0.3, ge=0)
    mu: float = number(0.8, ge=0)
    threshold: float = number(0.1, ge=0, lt=1)


@dataclass
class RewardConfig(Node):
    """Weighted reward components by name; each is an object built from its `_target_` and plain arguments.

    A component that raises abstains for that row; when more than `max_error_share` of all scores raised, the run stops.
    A component that is 0, or 1, on every completion for `alarm_steps` steps in a row is warned about.

    Example::

        python train.py reward.components.format.weight=0.5
    """

    name: str = "accuracy_format"
    components: dict[str, Any] = field(default_factory=dict)
    temporal: TemporalRewardConfig = field(default_factory=TemporalRewardConfig)
    max_error_share: float = number(0.05, ge=0, le=1)
    alarm_steps: int = number(50, ge=1)

    def check(self) -> None:
        if self.temporal != TemporalRewardConfig() and "temporal" not in self.components:
            raise ConfigError("temporal", "has no effect without a component temporal; reward=t_grpo has one")
        for name, component in self.components.items():
            key = f"components.{name}"
            if not isinstance(component, Mapping) or "_target_" not in component:
                raise ConfigError(key, "must be a node with _target_, weight and the arguments of its object")
            weight = component.get("weight", 1.0)
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
                raise ConfigError(f"{key}.weight", f"must be a finite number, not {weight!r}")
        if self.components and not any(self.weights.values()):
            raise ConfigError("components", "all weights are 0; remove components with ~reward.components.NAME")

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each component in the reward's sum."""
        return {name: float(component.get("weight", 1.0)) for name, component in self.components.items()}

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """What to build for each component: `_target_` and arguments, without the weight."""
        return {
            name: {key: value for key, value in component.items() if key != "weight"}
            for name, component in self.components.items()
        }


@dataclass
class EntropyConfig(Node):
    """Key tokens by the entropy of the policy's next-token distribution; `top_k: null` means `ktr.top_k`."""

    enabled: bool = True
    top_k: float | None = number(None, gt=0, le=1)


@dataclass
class VisualConfig(Node):
    """Key tokens by how much their log-prob moves without the video."""

    enabled: bool = True
    top_k: float | None = number(None, gt=0, le=1)
    blind: str = choice("drop_tokens", "zero_features", "drop_tokens")


@dataclass
class TemporalConfig(Node):
    """Key tokens by how much their log-prob moves when the frames change places."""

    enabled: bool = True
    top_k: float | None = number(None, gt=0, le=1)
    granularity: str = choice("patch", "frame", "patch")
    permutations: int = number(1, ge=1)


@dataclass
class KtrConfig(Node):
    """Key-token reinforcement (Video-KTR, arXiv 2601.19686): which completion tokens carry the objective.

    Example::

        python train.py ktr=video_ktr ktr.top_k=0.3 ktr.visual.top_k=0.1
    """

    name: str = "video_ktr_fast"
    top_k: float = number(0.2, gt=0, le=1)
    entropy: EntropyConfig = field(default_factory=EntropyConfig)
    visual: VisualConfig = field(default_factory=VisualConfig)
    temporal: TemporalConfig = field(default_factory=TemporalConfig)
    delta: str = choice("absolute", "absolute", "signed")
    scope: str = choice("completion", "completion", "group")
    combine: str = choice("union", "union", "intersection")
    weights: str = choice("binary", "binary", "softmax", "sigmoid", "linear", "exponential")
    normalize: str = choice("completion", "completion", "selected")
    mask_kl: bool = True

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that are on, in a fixed order."""
        return tuple(signal for signal in SIGNALS if getattr(self, signal).enabled)

    @property
    def ratios(self) -> dict[str, float]:
        """The share of tokens each signal that is on keeps."""
        own = {signal: getattr(self, signal).top_k for signal in self.signals}
        return {signal: self.top_k if ratio is None else ratio for signal, ratio in own.items()}


@dataclass
class OptimizationConfig(Node):
    """What the SFT and the GRPO trainer share. `max_steps`, where set, ends the stage instead of `epochs`."""

    max_steps: int | None = number(None, ge=1)
    epochs: float = number(1.0, gt=0)
    gradient_accumulation: int = number(1, ge=1)
    learning_rate: float = number(1e-6, gt=0)
    lr_scheduler: str = choice("cosine", "constant", "constant_with_warmup", "linear", "cosine")
    warmup_steps: int = number(0, ge=0)
    weight_decay: float = number(0.01, ge=0)
    max_grad_norm: float = number(5.0, gt=0)
    bf16: bool = False
    logging_steps: int = number(1, ge=1)
    save_steps: int | None = number(None, ge=1)
    save_total_limit: int = number(2, ge=1)

    def check(self) -> None:
        if self.max_steps is not None and self.warmup_steps > self.max_steps:
            raise ConfigError("warmup_steps", f"={self.warmup_steps} is above max_steps={self.max_steps}")


@dataclass
class SftConfig(OptimizationConfig):
    """Supervised warm-up (node `sft`): loss on the assistant's tokens only; `batch_size` is rows a device and step,
    of which each of `gradient_accumulation` passes takes its part.

    Example::

        python train.py stages=[sft] sft.max_steps=200 sft.learning_rate=2e-3
    """

    name: str = choice("sft", "sft")
    batch_size: int = number(2, ge=1)

    def check(self) -> None:
        super().check()
        if self.batch_size % self.gradient_accumulation:
            raise ConfigError(
                "gradient_accumulation", f"={self.gradient_accumulation} must divide batch_size={self.batch_size}"
            )


@dataclass
class GrpoConfig(OptimizationConfig):
    """Group-relative policy optimisation (node `trainer`).

    `groups_per_step` prompts a device and step, `group_size` completions each, seen in `gradient_accumulation` equal
    parts; each batch of completions serves `updates_per_batch` optimizer steps. The step's objective, KL estimator and
    clipping are those of the named papers; `epsilon` and `epsilon_high` left null take the objective's published values
    (grpo 0.2; dapo 0.2 and 0.28; gspo 3e-4 and 4e-4), `cispo_cap` bounds cispo's weight, `kl_clamp` the log-ratio
    (Video-R1: 10). `max_packed_tokens` bounds the tokens of one forward, with `packing` or without.

    Groups whose rewards are all equal have no advantages: `zero_variance` says whether to keep them (they carry the KL
    term), to mask them, or to resample their completions up to `resample_limit` times and mask what is still equal.

    Example::

        python train.py trainer.objective=dapo trainer.epsilon_high=0.28 trainer.beta=0
    """

    name: str = choice("grpo", "grpo")
    groups_per_step: int = number(1, ge=1)
    group_size: int = number(8, ge=2)
    updates_per_batch: int = number(1, ge=1)
    objective: str = choice("grpo", "grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo")
    beta: float = number(0.04, ge=0)
    epsilon: float | None = number(None, gt=0)
    epsilon_high: float | None = number(None, gt=0)
    cispo_cap: float = number(5.0, gt=0)
    kl_estimator: str = choice("k3", "k1", "k2", "k3")
    kl_clamp: float | None = number(None, gt=0)
    scale_advantages: bool = True
    zero_variance: str = choice("keep", "keep", "mask", "resample")
    resample_limit: int = number(3, ge=1)
    packing: bool = True
    max_packed_tokens: int | None = number(None, ge=64)
    log_completions_every: int = number(10, ge=1)

    def check(self) -> None:
        super().check()
        if self.groups_per_step % self.gradient_accumulation:
            raise ConfigError(
                "gradient_accumulation",
                f"={self.gradient_accumulation} must divide groups_per_step={self.groups_per_step}: "
                "a group is never split between two passes",
            )
        if self.epsilon is not None and self.epsilon_high is not None and self.epsilon_high < self.epsilon:
            raise ConfigError("epsilon_high", f"={self.epsilon_high:g} is below epsilon={self.epsilon:g}")
