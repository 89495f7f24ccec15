"""Settings that a command line gives and that change nothing beside its other settings: each is warned about by name.

They are no errors: a sweep such as `ktr=none,video_ktr ktr.top_k=0.1,0.2` meets them on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ktr.config.schemas import RunConfig, TrainConfig

# Keys, a part of them for all below it, and why they have no effect; the first that applies is told.
Rule = tuple[tuple[str, ...], Callable[[TrainConfig], bool], str]
_RULES: tuple[Rule, ...] = (
    (("trainer", "ktr", "reward", "rollout"), lambda c: "rl" not in c.stages, "the stage rl is not among stages"),
    (("sft",), lambda c: "sft" not in c.stages, "the stage sft is not among stages"),
    (
        ("eval",),
        lambda c: "eval" not in c.stages and c.eval.every_steps is None,
        "the stage eval is not among stages, and eval.every_steps is not set",
    ),
    (("ktr",), lambda c: not c.ktr.signals, "no signal of ktr is on"),
    (("ktr.entropy.top_k",), lambda c: not c.ktr.entropy.enabled, "ktr.entropy.enabled is false"),
    (
        ("ktr.visual.top_k", "ktr.visual.blind"),
        lambda c: not c.ktr.visual.enabled,
        "ktr.visual.enabled is false",
    ),
    (
        ("ktr.temporal.top_k", "ktr.temporal.granularity", "ktr.temporal.permutations"),
        lambda c: not c.ktr.temporal.enabled,
        "ktr.temporal.enabled is false",
    ),
    (
        ("ktr.top_k",),
        lambda c: all(getattr(c.ktr, signal).top_k is not None for signal in c.ktr.signals),
        "every signal that is on has a top_k of its own",
    ),
    (
        ("ktr.combine", "ktr.scope"),
        lambda c: c.ktr.weights != "binary",
        "soft weights are averaged: ktr.weights is not binary",
    ),
    (("ktr.normalize",), lambda c: c.trainer.objective == "dr_grpo", "dr_grpo divides by a constant"),
    (("ktr.combine",), lambda c: len(c.ktr.signals) == 1, "one signal alone is on"),
    (
        ("ktr.mask_kl", "trainer.kl_estimator", "trainer.kl_clamp"),
        lambda c: c.trainer.beta == 0,
        "there is no KL term: trainer.beta is 0",
    ),
    (
        ("trainer.resample_limit",),
        lambda c: c.trainer.zero_variance != "resample",
        "trainer.zero_variance is not resample",
    ),
    (
        ("trainer.epsilon", "trainer.epsilon_high"),
        lambda c: c.trainer.objective == "cispo",
        "cispo clips by trainer.cispo_cap",
    ),
    (("trainer.cispo_cap",), lambda c: c.trainer.objective != "cispo", "trainer.objective is not cispo"),
    (
        ("model.lora.alpha", "model.lora.dropout", "model.lora.target_modules"),
        lambda c: c.model.lora.rank == 0,
        "model.lora.rank is 0",
    ),
    (("model.lora.dropout",), lambda c: "sft" not in c.stages, "the stage rl has no dropout"),
    (("model.freeze_vision",), lambda c: c.model.lora.rank > 0, "adapters are the language model's alone"),
    (("trainer.epochs",), lambda c: c.trainer.max_steps is not None, "trainer.max_steps ends the stage"),
    (("sft.epochs",), lambda c: c.sft.max_steps is not None, "sft.max_steps ends the stage"),
)


def without_effect(config: RunConfig, overrides: Sequence[str]) -> Iterator[str]:
    """One line for each setting among `overrides` that changes nothing, with the key and the reason.

    Choices of a group (`ktr=none`), switches (`...enabled`) and nulls are left alone.

    Example::

        >>> list(without_effect(config, ["ktr=none", "ktr.top_k=0.3"]))
        ['ktr.top_k has no effect: no signal of ktr is on']
    """
    if not isinstance(config, TrainConfig):
        return
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if override.startswith("~") or "." not in key or key.endswith(".enabled") or value == "null":
            continue
        for keys, applies, reason in _RULES:
            if any(key == known or key.startswith(f"{known}.") for known in keys) and applies(config):
                yield f"{key} has no effect: {reason}"
                break
