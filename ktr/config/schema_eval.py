"""Schema of the group `eval`: which rows are asked, how they are decoded, how replies are scored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ktr.config.convert import to_node
from ktr.config.fields import ConfigError, Node, choice, free_text, items, number
from ktr.config.schema_inputs import ROW_FORMATS, SamplingConfig

ENGINES = ("transformers", "vllm", "replay")
VIEWS = ("full", "shuffled", "no_video", "one_frame")  # Those of `ktr.evaluation.views`, which imports torch.
METRICS = (
    "accuracy",
    "category_mean",
    "vsi_bench",
    "ovo_bench",
    "temporal_grounding",
    "spatio_temporal_grounding",
    "counting",
    "multi_binary",
)
# What belongs to a run rather than to a benchmark: a suite gives its own value to each of its benchmarks.
_RUN_KEYS = (
    "root",
    "engine",
    "replies",
    "limit",
    "batch_size",
    "num_samples",
    "views",
    "bootstrap",
    "policy",
    "judge",
    "cache",
    "vllm",
)


@dataclass
class JudgeConfig(Node):
    """An OpenAI-compatible endpoint that judges open answers; without `base_url` they stay unjudged, and counted.

    Example::

        python evaluate.py eval=mmvu eval.judge.base_url=http://localhost:8000/v1 eval.judge.model=NAME
    """

    base_url: str | None = free_text()
    model: str | None = free_text()
    api_key_env: str | None = "OPENAI_API_KEY"
    concurrency: int = number(8, ge=1)
    cache: str | None = free_text()

    def check(self) -> None:
        if (self.base_url is None) != (self.model is None):
            missing = "base_url" if self.base_url is None else "model"
            raise ConfigError(missing, "is required: a judge needs base_url and model")


@dataclass
class VllmConfig(Node):
    """How vLLM runs in this process: its share of the device's memory or a fixed KV cache, and devices to spread over.

    Example::

        python evaluate.py eval=mmvu eval.engine=vllm eval.vllm.tensor_parallel_size=4 model=qwen2_5_vl_7b
    """

    memory_share: float | None = number(None, gt=0, le=1)
    kv_cache_gb: float | None = number(None, gt=0)
    tensor_parallel_size: int = number(1, ge=1)
    compile: bool = True

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `vllm.LLM`; what is not set is left to vLLM."""
        cache = None if self.kv_cache_gb is None else int(self.kv_cache_gb * 2**30)
        given = {"gpu_memory_utilization": self.memory_share, "kv_cache_memory_bytes": cache}
        chosen = {name: value for name, value in given.items() if value is not None}
        return chosen | {"tensor_parallel_size": self.tensor_parallel_size, "enforce_eager": not self.compile}


@dataclass
class EvalConfig(Node):
    """How models are measured.

    Rows: `rows` is a file (under `root` where that is set), with `media_root` and `frames`; without it the rows of
    `data` are asked. `prompt` and `max_prompt_tokens` go before those of `data`. `facets` names the columns of the file
    by which accuracy is also shown, `name: column` (several candidates parted by `|`). `subtitles` is a folder of
    `.srt` files, or `rows` for the column of that name.

    Decoding: `temperature=0` is greedy; `num_samples` above 1 adds pass@k and the majority vote. `engine=vllm` runs as
    `vllm` says, `engine=replay` scores the `{id, reply}` lines of `replies`. `cache` is a folder in which replies are
    kept for other runs.

    Scoring: `policy` names the scorer's rules, `metric` the figures, `regression` how closeness counts. With
    `require_tags` null the rows of `data` are scored as training scores them, by their answer tags; replies to a
    benchmark, to the prompt `direct`, and given ones are read as a whole where they have no tags and were not cut off.
    `judge_only` rows have no gold that a rule could use.

    Runs: `views` are scored one by one; `every_steps` also measures `every_rows` held-out rows during training; `base`
    also measures the model before it. A suite lists its `benchmarks`; `shared` is laid over each of them.

    Example::

        python evaluate.py model=qwen2_5_vl_7b eval=videomme eval.root=/benchmarks eval.frames.nframes=32
    """

    name: str = "held_out"
    splits: list[str] = items("test")
    root: str | None = free_text()
    rows: str | None = free_text()
    format: str = choice("auto", "auto", *ROW_FORMATS)
    media_root: str | None = free_text()
    subtitles: str | None = free_text()
    facets: dict[str, str] = field(default_factory=dict)
    prompt: str | None = free_text()
    frames: SamplingConfig | None = None
    max_prompt_tokens: int | None = number(None, ge=1)
    engine: str = choice("transformers", *ENGINES)
    replies: str | None = free_text()
    limit: int | None = number(None, ge=1)
    batch_size: int = number(16, ge=1)
    max_new_tokens: int = number(1024, ge=1)
    temperature: float = number(0.0, ge=0)
    top_p: float = number(1.0, gt=0, le=1)
    num_samples: int = number(1, ge=1)
    views: list[str] = items("full")
    base: bool = True
    every_steps: int | None = number(None, ge=1)
    every_rows: int = number(64, ge=1)
    bootstrap: int = number(2000, ge=100)
    policy: str = choice("default", "default", "video_r1")
    metric: str = choice("accuracy", *METRICS)
    regression: str = choice("relative_error", "relative_error", "mra", "mra_vsibench")
    require_tags: bool | None = None
    judge_only: bool = False
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    cache: str | None = free_text()
    vllm: VllmConfig = field(default_factory=VllmConfig)
    benchmarks: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        known = ("train", "validation", "test")
        if not self.splits or any(split not in known for split in self.splits):
            raise ConfigError("splits", f"must list some of {', '.join(known)}, not {self.splits}")
        wrong = [view for view in self.views if view not in VIEWS]
        if wrong or not self.views or len(set(self.views)) < len(self.views):
            raise ConfigError("views", f"must list some of {', '.join(VIEWS)}, each once, not {self.views}")
        if self.engine == "replay" and self.replies is None:
            raise ConfigError("replies", 'is required with engine=replay: a file of {"id": ..., "reply": ...} lines')
        if self.engine != "replay" and self.replies is not None:
            raise ConfigError("replies", f"has no effect with engine={self.engine}; set engine=replay")
        if self.num_samples > 1 and self.temperature == 0 and self.engine != "replay":
            raise ConfigError("num_samples", f"={self.num_samples} needs temperature above 0: greedy replies are equal")
        if self.shared and not self.benchmarks:
            raise ConfigError("shared", "is laid over the benchmarks of a suite, and this is none")
        _ = self.members

    @property
    def members(self) -> dict[str, EvalConfig]:
        """The benchmarks of a suite with what the suite sets for all, by name; a benchmark alone is its own member."""
        if not self.benchmarks:
            return {self.name: self}
        run = {key: _plain(getattr(self, key)) for key in _RUN_KEYS}
        members = {}
        for name, values in self.benchmarks.items():
            if not isinstance(values, Mapping):
                raise ConfigError(f"benchmarks.{name}", f"must hold settings, not {values!r}")
            given = {key: value for key, value in run.items() if value != _DEFAULTS[key]}
            member = to_node(EvalConfig, {**values, **given, **self.shared}, f"benchmarks.{name}")
            if member.benchmarks:
                raise ConfigError(f"benchmarks.{name}.benchmarks", "a suite cannot hold another suite")
            members[name] = member
        return members

    @property
    def rows_path(self) -> Path | None:
        return _under(self.root, self.rows)

    @property
    def media_path(self) -> Path | None:
        """Where media lie; without a `media_root` of its own, beside the rows."""
        path = _under(self.root, self.media_root)
        return path or (self.rows_path.parent if self.rows_path is not None else None)

    @property
    def wants_tags(self) -> bool:
        if self.require_tags is not None:
            return self.require_tags
        return self.rows is None and self.engine != "replay" and self.prompt != "direct"


def _under(root: str | None, path: str | None) -> Path | None:
    if path is None:
        return None
    return Path(root).expanduser() / path if root is not None else Path(path).expanduser()


def _plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


_DEFAULTS = {key: _plain(getattr(EvalConfig(), key)) for key in _RUN_KEYS}
