"""Schemas of the groups `rollout`, `eval` and `logger`: sampling, measuring and keeping records."""

from __future__ import annotations

from dataclasses import dataclass

from ktr.config.fields import ConfigError, Node, choice, items, number


@dataclass
class RolloutConfig(Node):
    """The engine that samples completions, and the sampling settings of training.

    `max_batch_tokens` bounds the tokens, padding included, that are decoded together; it changes speed, not results.

    Example::

        python train.py rollout.max_new_tokens=256 rollout.top_p=0.95
    """

    _target_: str = "ktr.rollout.transformers_engine.TransformersRollout"
    name: str = "transformers"
    max_new_tokens: int = number(768, ge=1)
    temperature: float = number(1.0, ge=0)
    top_p: float = number(1.0, gt=0, le=1)
    top_k: int = number(0, ge=0)
    max_batch_tokens: int = number(32768, ge=64)


@dataclass
class EvalConfig(Node):
    """How models are measured: decoding (temperature 0 is greedy), splits, and which extra views are scored.

    `shuffled` also answers on shuffled frames; `base` also measures the model before any training; `bootstrap` is the
    number of resamples behind the 95 % intervals; `policy` names the scorer's rules.

    Example::

        python train.py eval.limit=200 eval.shuffled=false
    """

    name: str = "held_out"
    splits: list[str] = items("test")
    limit: int | None = number(None, ge=1)
    batch_size: int = number(16, ge=1)
    max_new_tokens: int = number(1024, ge=1)
    temperature: float = number(0.0, ge=0)
    top_p: float = number(1.0, gt=0, le=1)
    shuffled: bool = True
    base: bool = True
    bootstrap: int = number(2000, ge=100)
    policy: str = choice("default", "default", "video_r1")
    require_tags: bool = True

    def check(self) -> None:
        known = ("train", "validation", "test")
        if not self.splits or any(split not in known for split in self.splits):
            raise ConfigError("splits", f"must list some of {', '.join(known)}, not {self.splits}")


@dataclass
class LoggerConfig(Node):
    """A tracker beside `metrics.jsonl`, which is always written.

    Example::

        python train.py logger=wandb logger.project=video logger.mode=offline
    """

    name: str = choice("none", "none", "wandb")
    project: str = "ktr"
    entity: str | None = None
    group: str | None = None
    mode: str = choice("online", "online", "offline")
    tags: list[str] = items()
