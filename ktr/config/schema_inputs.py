"""Schemas of the groups `model` and `data`: what is trained, and on what."""

from __future__ import annotations

from dataclasses import dataclass, field

from ktr.config.fields import MAX_SEED, ConfigError, Node, choice, free_text, items, number
from ktr.config.schema_sources import ROW_FORMATS, KeepConfig, SourceConfig
from ktr.data.rows import REASONING, TASKS
from ktr.models.lora import LANGUAGE_PROJECTIONS

__all__ = ["ROW_FORMATS", "DataConfig", "ModelConfig"]


@dataclass
class LoraConfig(Node):
    """Low-rank adapters of the language model's projections; rank 0 trains the whole model. With adapters the vision
    tower does not learn, whatever `freeze_vision` says. `dropout` acts in the warm-up; the rl stage has none, where it
    would move log-probs between one view of a completion and the next.

    Example::

        python train.py model.lora.rank=16 model.lora.alpha=32
    """

    rank: int = number(0, ge=0)
    alpha: float = number(32.0, gt=0)
    dropout: float = number(0.0, ge=0, lt=1)
    target_modules: list[str] = items(*LANGUAGE_PROJECTIONS)

    def check(self) -> None:
        if self.rank > 0 and not self.target_modules:
            raise ConfigError("target_modules", "name at least one module, or switch LoRA off with rank=0")
        for name in self.target_modules:
            if name not in LANGUAGE_PROJECTIONS:
                raise ConfigError("target_modules", f"must list some of {', '.join(LANGUAGE_PROJECTIONS)}, not {name}")


@dataclass
class ToyModelConfig(Node):
    """Size of the small checkpoint that `model=toy` builds in the run folder.

    Example::

        python train.py model.toy.hidden_size=192 model.toy.num_layers=4
    """

    family: str = choice("qwen2_5_vl", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")
    hidden_size: int = number(128, ge=32)
    intermediate_size: int = number(384, ge=32)
    num_layers: int = number(4, ge=1)
    num_kv_heads: int = number(2, ge=1)
    head_dim: int = number(32, ge=32)
    vision_hidden_size: int = number(64, ge=32)
    vision_intermediate_size: int = number(128, ge=32)
    vision_depth: int = number(2, ge=1)
    patch_size: int = number(14, ge=2)
    initializer_range: float = number(0.05, gt=0)
    max_length: int = number(4096, ge=64)

    def check(self) -> None:
        for name in ("hidden_size", "vision_hidden_size"):
            if getattr(self, name) % self.head_dim:
                raise ConfigError(name, f"must be a multiple of head_dim={self.head_dim}, not {getattr(self, name)}")
        if (self.hidden_size // self.head_dim) % self.num_kv_heads:
            heads = self.hidden_size // self.head_dim
            raise ConfigError("num_kv_heads", f"must divide the {heads} attention heads, not {self.num_kv_heads}")


@dataclass
class ModelConfig(Node):
    """A checkpoint and how it is loaded. `path` is a folder or a hub name; null builds the toy model.

    `deepspeed` is a file of DeepSpeed's settings (ZeRO-1 to 3), for training on several ranks.

    Example::

        python train.py model=qwen2_5_vl_7b model.attn_implementation=flex_attention
        python train.py model=checkpoint model.path=/models/mine
    """

    name: str = "toy"
    path: str | None = free_text()
    dtype: str = choice("float32", "float32", "bfloat16", "float16")
    attn_implementation: str = choice("sdpa", "sdpa", "eager", "flash_attention_2", "flex_attention")
    freeze_vision: bool = False
    gradient_checkpointing: bool = False
    deepspeed: str | None = free_text()
    lora: LoraConfig = field(default_factory=LoraConfig)
    toy: ToyModelConfig = field(default_factory=ToyModelConfig)


@dataclass
class SamplingConfig(Node):
    """Which frames of a video are read, and how large. Exactly one of `fps` and `nframes` is set.

    `min_frames` and `max_frames` bound what `fps` gives; pixels are counted a frame, `total_pixels` over the video.

    Example::

        python train.py data.sampling.fps=2 data.sampling.nframes=null data.sampling.max_frames=64
    """

    fps: float | None = number(None, gt=0)
    nframes: int | None = number(16, ge=2)
    min_frames: int = number(4, ge=2)
    max_frames: int = number(768, ge=2)
    min_pixels: int = number(4 * 28 * 28, ge=1)
    max_pixels: int = number(128 * 28 * 28, ge=1)
    total_pixels: int | None = number(None, ge=1)

    def check(self) -> None:
        if self.fps is not None and self.nframes is not None:
            raise ConfigError(
                "fps",
                f"={self.fps:g} and {{group}}.nframes={self.nframes} exclude each other: add {{group}}.fps=null for "
                f"{self.nframes} frames of every video, or {{group}}.nframes=null for {self.fps:g} a second",
            )
        if self.fps is None and self.nframes is None:
            raise ConfigError("fps", "and {group}.nframes are both null: set one of them")
        if self.nframes is not None and self.nframes % 2:
            raise ConfigError("nframes", f"must be even, since frames enter the model in pairs, not {self.nframes}")
        if self.min_frames > self.max_frames:
            raise ConfigError("min_frames", f"={self.min_frames} is above max_frames={self.max_frames}")
        if self.min_pixels > self.max_pixels:
            raise ConfigError("min_pixels", f"={self.min_pixels} is above max_pixels={self.max_pixels}")
        if self.total_pixels is not None and self.total_pixels < self.min_pixels:
            raise ConfigError("total_pixels", f"={self.total_pixels} is below min_pixels={self.min_pixels}")


@dataclass
class ToyDataConfig(Node):
    """How many clips of coloured shapes `data=toy` renders, and which kinds of question the warm-up sees little of.

    The warm-up gets `scarce_share` of the training rows of `scarce_kinds`; reinforcement and evaluation get all.

    Example::

        python train.py data.toy.train_clips=200 data.toy.seed=3
    """

    train_clips: int = number(800, ge=1)
    validation_clips: int = number(50, ge=1)
    test_clips: int = number(700, ge=1)
    questions_per_clip: int = number(3, ge=1)
    seed: int = number(0, ge=0, le=MAX_SEED)
    scarce_kinds: list[str] = items()
    scarce_share: float = number(1.0, ge=0, le=1)


@dataclass
class DataConfig(Node):
    """Rows, where their videos and images lie, and how a row becomes a prompt.

    `path` holds the training rows; `sft_path` those of the warm-up and `eval_path` those of the evaluation where they
    differ. Each is a file, a folder that `datasets` wrote, or `hf://owner/name?split=train`. `mix` takes the place of
    `path`: several sources by weight, `mix_rows` of them in all (null: as many as repeats no row). `keep` filters rows,
    `subset` draws that many of them by `subset_seed`, `limit` takes the first. `prompt` is a name under conf/prompts or
    a file.

    `captions_path` holds timestamped captions (rows of the format `rewatch_captions`) of the same media, for rewards
    and tasks that need them. `sft_tasks` are what the warm-up learns from its rows, together: `reasoning` (the
    rationale and the answer), `direct` (the answer alone), `captioning` (each video's captions).

    `cache` is a folder of decoded media, read and filled, at most `cache_gb` large. `workers` processes decode ahead of
    training; `memory_gb` bounds what they hold ready, all together.

    `mixed_media` says what a step of several ranks does with rows of different kinds: `blank` gives a forward one blank
    token of each kind it lacks, which weighs nothing, so that all ranks run the vision tower equally often;
    `homogeneous` fills steps with rows of one kind; `free` does nothing; `auto` is `blank` under ZeRO-3 and FSDP.

    Example::

        python train.py data=video_r1 data.path=rows.json data.media_root=/videos data.cache=/fast/cache data.workers=4
    """

    name: str = "toy"
    format: str = choice("toy", "toy", *ROW_FORMATS)
    path: str | None = free_text()
    sft_path: str | None = free_text()
    eval_path: str | None = free_text()
    mix: list[SourceConfig] = field(default_factory=list)
    mix_rows: int | None = number(None, ge=1)
    keep: KeepConfig = field(default_factory=KeepConfig)
    subset: int | None = number(None, ge=1)
    subset_seed: int = number(0, ge=0, le=MAX_SEED)
    captions_path: str | None = free_text()
    sft_tasks: list[str] = items(REASONING)
    media_root: str | None = free_text()
    prompt: str = free_text("toy")
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    decoder: str = choice("auto", "auto", "decord", "torchcodec", "pyav")
    modality: str = choice("any", "any", "video", "image")
    mixed_media: str = choice("auto", "auto", "blank", "homogeneous", "free")
    on_error: str = choice("raise", "raise", "skip")
    limit: int | None = number(None, ge=1)
    workers: int = number(0, ge=0, le=128)
    memory_gb: float = number(4.0, gt=0)
    cache: str | None = free_text()
    cache_gb: float = number(64.0, gt=0)
    max_prompt_tokens: int | None = number(16384, ge=1)
    toy: ToyDataConfig = field(default_factory=ToyDataConfig)

    def check(self) -> None:
        if self.mix and (self.path or self.format == "toy"):
            raise ConfigError("mix", "takes the place of path: set one of them (data=mix has no path)")
        if not self.sft_tasks or any(task not in TASKS for task in self.sft_tasks):
            raise ConfigError("sft_tasks", f"must list some of {', '.join(TASKS)}, not {self.sft_tasks}")
        if self.mix_rows is not None and not any(source.weight is not None for source in self.mix):
            raise ConfigError("mix_rows", "needs the weights of data.mix")
        if len({source.weight is None for source in self.mix}) > 1:
            raise ConfigError("mix", "gives some sources a weight and others none; give all of them one, or none")
