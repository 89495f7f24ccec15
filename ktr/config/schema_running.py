"""Schemas of the groups `rollout` and `logger`: sampling and keeping records."""

from __future__ import annotations

from dataclasses import dataclass

from ktr.config.fields import Node, choice, items, number


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
