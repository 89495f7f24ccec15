"""GRPO and SFT trainers over a few real files, small enough for a test, and what they leave behind."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clips import write_clip
from PIL import Image
from transformers import PrinterCallback, TrainerCallback

from ktr.attribution.settings import KeyTokenSettings
from ktr.config.schema_learning import GrpoConfig, SftConfig
from ktr.data.media import FrameSampling
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Media, Row
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.loading import LoadedModel, load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.rewards.runner import RewardRunner
from ktr.rollout.engine import Completion, SamplingSettings
from ktr.rollout.transformers_engine import TransformersRollout
from ktr.training.arguments import grpo_arguments, sft_arguments
from ktr.training.callbacks import TIME_KEYS, MetricsFile
from ktr.training.grpo_trainer import KeyTokenGRPOTrainer
from ktr.training.mixed_media import whole_weights
from ktr.training.objective_settings import ObjectiveSettings
from ktr.training.run_folder import RunFolder
from ktr.training.sft_trainer import SupervisedTrainer, supervised_trainer

PLAIN = KeyTokenSettings(signals=())
SAMPLING = SamplingSettings(max_new_tokens=6)
_RUNS = itertools.count()


def make_rows(root: Path, kinds: Sequence[str] = ("video", "image", "text", "video")) -> list[Row]:
    """Rows about real files in `root`, which are written where they are missing."""
    rows = []
    for number, kind in enumerate(kinds):
        path = root / f"{number}.{'mp4' if kind == 'video' else 'png'}"
        if kind == "video" and not path.exists():
            write_clip(path, 8 + number, size=(56, 56))
        elif kind == "image" and not path.exists():
            pixels = np.random.default_rng(number).integers(0, 256, (60, 90, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
        media = None if kind == "text" else Media(kind, path.name)
        rows.append(Row(f"row-{number}", "what moved first ?", media, "free-form", (), "red", rationale="I see red ."))
    return rows


def length_reward(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """Differs between completions, so that groups have a spread."""
    return [float(sum(ids) % 7) for ids in completion_ids]


class ScriptedRollout:
    """Completions of uneven lengths that depend on the row and on nothing else."""

    def __init__(self, *unused: Any) -> None:
        self.calls = 0

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        num_completions: int,
        settings: SamplingSettings,
        seed: int,
        progress: bool = False,
    ) -> list[list[Completion]]:
        self.calls += 1
        return [[self.completion(prompt.row.id, i) for i in range(num_completions)] for prompt in prompts]

    @staticmethod
    def completion(row_id: str, number: int) -> Completion:
        draw = random.Random(f"{row_id}/{number}")
        ids = tuple(draw.randrange(10, 200) for _ in range(draw.randint(2, 6)))
        return Completion(ids, " ".join(map(str, ids)), None, False)


class Gradients(TrainerCallback):
    """Keeps the gradients of every optimizer step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.steps.append(gradients_of(model))


class Forwards:
    """Records each forward of a model: whether it had gradient, how many rows, and what vision it was given."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.seen: list[dict[str, Any]] = []
        model.register_forward_pre_hook(self._record, with_kwargs=True)

    def _record(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        vision = [key for key in ("pixel_values", "pixel_values_videos", "mm_encoder_outputs") if key in kwargs]
        self.seen.append({"grad": torch.is_grad_enabled(), "rows": len(kwargs["input_ids"]), "vision": vision})

    @property
    def with_gradient(self) -> int:
        return sum(one["grad"] for one in self.seen)

    @property
    def without_gradient(self) -> int:
        return len(self.seen) - self.with_gradient


def make_encoder(loaded: LoadedModel, root: Path) -> PromptEncoder:
    return PromptEncoder(
        loaded.processor, loaded.family, PromptTemplate("test", "{question}"), FrameSampling(nframes=4), media_root=root
    )


def make_trainer(checkpoint: Path, root: Path, rows: list[Row], **options: Any) -> KeyTokenGRPOTrainer:
    """A trainer of 2 groups of 3 completions a step; `trainer` holds settings of `GrpoConfig`."""
    settings = GrpoConfig(
        **{
            "max_steps": 2, "groups_per_step": 2, "group_size": 3, "learning_rate": 1e-3, "lr_scheduler": "constant",
            "max_grad_norm": 1e9, **options.pop("trainer", {}),
        }
    )  # fmt: skip
    loaded = load_model(checkpoint, freeze_vision=options.pop("freeze_vision", False))
    encoder = make_encoder(loaded, root)
    folder = RunFolder(root / options.pop("run", f"run-{next(_RUNS)}"), is_main=options.pop("is_main", True))
    arguments = grpo_arguments(
        settings, folder.path / "steps", seed=options.pop("seed", 0), workers=0,
        checkpointing=options.pop("checkpointing", False), max_new_tokens=SAMPLING.max_new_tokens,
        temperature=SAMPLING.temperature, top_p=1.0, top_k=0, deepspeed=options.pop("deepspeed", None),
    )  # fmt: skip
    arguments.optim = options.pop("optim", arguments.optim)
    readable = options.pop("readable", None)
    defaults: dict[str, Any] = {
        "rollout": ScriptedRollout,
        "sampling": SAMPLING,
        "rewards": RewardRunner({"length": (length_reward, 1.0)}),
        "key_tokens": KeyTokenSettings(top_k=0.4),
        "objective": objective_of(settings),
        "folder": folder,
        "max_packed_tokens": 4096,
        "callbacks": [MetricsFile(folder, "rl"), *options.pop("callbacks", ())],
        "readable": readable(encoder) if readable else None,
    }
    trainer = KeyTokenGRPOTrainer(loaded.model, loaded.processor, encoder, rows, arguments, **(defaults | options))
    trainer.remove_callback(PrinterCallback)
    return trainer


def make_sft_trainer(checkpoint: Path, root: Path, rows: list[Row], **options: Any) -> SupervisedTrainer:
    """A trainer of 4 rows a step; `trainer` holds settings of `SftConfig`."""
    settings = SftConfig(
        **{
            "batch_size": 4, "max_steps": 1, "learning_rate": 3e-3, "lr_scheduler": "constant", "max_grad_norm": 1e9,
            **options.pop("trainer", {}),
        }
    )  # fmt: skip
    loaded = load_model(checkpoint, freeze_vision=False)
    encoder = make_encoder(loaded, root)
    folder = RunFolder(root / options.pop("run", f"run-{next(_RUNS)}"), is_main=options.pop("is_main", True))
    arguments = sft_arguments(
        settings, folder.path / "steps", seed=options.pop("seed", 0), workers=options.pop("workers", 0),
        checkpointing=options.pop("checkpointing", False), deepspeed=options.pop("deepspeed", None),
    )  # fmt: skip
    arguments.optim = options.pop("optim", arguments.optim)
    readable = options.pop("readable", None)
    trainer = supervised_trainer(
        loaded.model,
        loaded.processor,
        encoder,
        rows,
        arguments,
        callbacks=[MetricsFile(folder, "sft"), *options.pop("callbacks", ())],
        readable=readable(encoder) if readable else None,
        **options,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def objective_of(settings: GrpoConfig, **more: Any) -> ObjectiveSettings:
    return ObjectiveSettings(
        objective=settings.objective, beta=settings.beta, max_completion_length=SAMPLING.max_new_tokens, **more
    )


def real_rollout(checkpoint: Path) -> Callable[[torch.nn.Module], TransformersRollout]:
    """Builds the engine of real runs, which samples from the policy."""
    loaded = load_model(checkpoint)
    return lambda model: TransformersRollout(model, loaded.processor.tokenizer, loaded.family)


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}


def run_step(trainer: KeyTokenGRPOTrainer, batches: Sequence[Any]) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of one optimizer step over sampled batches, without the step itself."""
    trainer.model.train()
    trainer.model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        total += float(loss.detach())
    return total, gradients_of(trainer.model)


def sample_step(trainer: KeyTokenGRPOTrainer, rows: Sequence[Row]) -> list[Any]:
    """Batches of one optimizer step over the rows, sampled and scored as in training."""
    trainer.model.train()
    return trainer._generate_and_score_completions([trainer.data_collator.encoder.encode(row) for row in rows])


def assert_same_gradients(
    found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 1e-4
) -> None:
    """Equal within `tolerance` of each parameter's largest entry (1e-3 at least, of the largest of all)."""
    assert found.keys() == expected.keys() and len(found) > 1
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 0, "all gradients are zero: nothing is compared"
    for name, gradient in expected.items():
        scale = max(float(gradient.abs().max()), 1e-3 * largest)
        assert float((found[name] - gradient).abs().max()) <= tolerance * scale, name


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def without_times(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if not any(time in k for time in TIME_KEYS)} for line in metrics]


def flat_reward(*flat: str) -> RewardRunner:
    """Equal rewards for the completions of the named rows, a spread for the others."""

    def reward(completions: list[str], completion_ids: list[list[int]], id: list[str], **columns: Any) -> list[float]:
        scores = length_reward(completions, completion_ids)
        return [1.0 if row in flat else score for row, score in zip(id, scores, strict=True)]

    return RewardRunner({"length": (reward, 1.0)})


def run_scenario(
    checkpoint: Path, root: Path, run: str, options: dict[str, Any], *, is_main: bool = True
) -> dict[str, Any]:
    """Trains with options that JSON can hold; returns gradients of each step, final weights and numbers of forwards."""
    options = dict(options)
    kept = Gradients()
    shared = {"callbacks": [kept], "run": run, "is_main": is_main, "optim": "sgd"}
    rows = make_rows(root, options.pop("kinds"))
    if options.pop("stage", "rl") == "sft":
        trainer = make_sft_trainer(checkpoint, root, rows, **shared, **options)
    else:
        key_tokens = KeyTokenSettings(**options.pop("key_tokens", {"top_k": 0.4}))
        settings = GrpoConfig(**options["trainer"])
        objective = objective_of(settings, normalize=key_tokens.normalize, mask_kl=key_tokens.mask_kl)
        rewards = flat_reward(*options.pop("flat", ()))
        trainer = make_trainer(
            checkpoint, root, rows, key_tokens=key_tokens, objective=objective, rewards=rewards, **shared, **options
        )
    forwards = Forwards(trainer.model)
    trainer.train()
    with whole_weights(trainer.model_wrapped, trainer.accelerator):
        weights = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    return {
        "engine": type(trainer.model_wrapped).__name__,
        "gradients": kept.steps,
        "weights": weights,
        "forwards": forwards.with_gradient,
    }
