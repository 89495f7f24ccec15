"""Without key tokens our trainer is GRPO: TRL's own methods give the same loss and gradients."""

from __future__ import annotations

import pytest
import torch
from datasets import Dataset
from trainer_cases import PLAIN, assert_same_gradients, gradients_of, make_rows, make_trainer, run_step, sample_step
from trl import GRPOConfig, GRPOTrainer

from ktr.models.loading import load_model
from ktr.training.objective_settings import ObjectiveSettings

BETA = 0.1
TRL_LOSSES = {"grpo": "grpo", "bnpo": "bnpo", "dr_grpo": "dr_grpo", "dapo": "dapo", "gspo": "grpo", "cispo": "cispo"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("parity")


def trl_trainer(checkpoint, root, objective: ObjectiveSettings, **arguments) -> GRPOTrainer:
    loaded = load_model(checkpoint, freeze_vision=False)
    low, high = objective.clip
    trainer = GRPOTrainer(
        loaded.model,
        [lambda completions, **columns: [0.0] * len(completions)],
        args=GRPOConfig(
            output_dir=str(root / "trl"), per_device_train_batch_size=6, num_generations=3, beta=objective.beta,
            max_completion_length=objective.max_completion_length, loss_type=TRL_LOSSES[objective.objective],
            importance_sampling_level="sequence" if objective.objective == "gspo" else "token", epsilon=low,
            epsilon_high=objective.cispo_cap if objective.objective == "cispo" else high, use_cpu=True, bf16=False,
            report_to=[], use_bias_correction_kl=False, disable_dropout=True, **arguments,
        ),
        train_dataset=Dataset.from_list([{"prompt": "what"}] * 6),
        processing_class=loaded.processor,
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def trl_inputs(groups, advantages_N: torch.Tensor) -> dict[str, torch.Tensor]:
    """What TRL's rollout hands to its loss: a row a completion, prompts left padded, completions right padded."""
    rows = [(group.prompt, ids) for group in groups for ids in group.completions]
    longest = max(len(prompt) for prompt, _ in rows)
    completion = max(len(ids) for _, ids in rows)
    prompt_ids = torch.zeros(len(rows), longest, dtype=torch.long)
    prompt_mask, types = torch.zeros_like(prompt_ids), torch.zeros_like(prompt_ids)
    completion_ids = torch.zeros(len(rows), completion, dtype=torch.long)
    completion_mask = torch.zeros_like(completion_ids)
    for n, (prompt, ids) in enumerate(rows):
        prompt_ids[n, longest - len(prompt) :] = prompt.input_ids_P
        prompt_mask[n, longest - len(prompt) :] = 1
        types[n, longest - len(prompt) :] = prompt.visual_mask_P.long()
        completion_ids[n, : len(ids)] = torch.tensor(ids)
        completion_mask[n, : len(ids)] = 1
    inputs = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": advantages_N,
        "num_items_in_batch": completion_mask.sum(),
    }
    if rows[0][0].modality == "image":
        inputs |= {
            "pixel_values": torch.cat([prompt.pixel_values_ND for prompt, _ in rows]),
            "image_grid_thw": torch.tensor([prompt.grid_thw for prompt, _ in rows]),
            "num_images": [1] * len(rows),
            "mm_token_type_ids": torch.cat([types, torch.zeros_like(completion_ids)], dim=1),
        }
    return inputs


def trl_logps(trainer: GRPOTrainer, model, inputs) -> torch.Tensor:
    vision = {
        name: inputs[name]
        for name in inputs
        if name in ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
    }
    with torch.no_grad():
        return trainer._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            inputs["completion_ids"].shape[1],
            **vision,
        )[0]


def disturb(*models: torch.nn.Module, scale: float, seed: int) -> None:
    """The same small change in every model."""
    for model in models:
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.data += scale * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize(
    ("kind", "objective", "updates", "packing"),
    [
        ("text", "grpo", 1, True),
        ("image", "grpo", 1, True),
        ("image", "grpo", 1, False),
        ("text", "grpo", 2, True),
        ("image", "grpo", 2, True),
        ("image", "dapo", 2, True),
        ("text", "bnpo", 2, True),
        ("text", "dr_grpo", 2, True),
        ("text", "gspo", 2, True),
        ("image", "cispo", 2, True),
    ],
)
def test_loss_and_gradients_are_those_of_trl(checkpoints, root, kind, objective, updates, packing):
    settings = ObjectiveSettings(objective=objective, beta=BETA, max_completion_length=6)
    rows = make_rows(root, ["text", "image", "text", "image"])[0 if kind == "text" else 1 :: 2]
    ours = make_trainer(
        checkpoints["qwen2_5_vl"], root, rows, key_tokens=PLAIN, packing=packing, objective=settings,
        trainer={"beta": BETA, "objective": objective, "updates_per_batch": updates},
    )  # fmt: skip
    theirs = trl_trainer(checkpoints["qwen2_5_vl"], root, settings, num_iterations=updates)
    disturb(ours.ref_model, theirs.ref_model, scale=0.05, seed=1)
    batches = sample_step(ours, rows)

    rewards = torch.tensor([[sum(ids) % 7 for ids in group.completions] for group in batches[0].groups]).float()
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    inputs = trl_inputs(batches[0].groups, advantages.reshape(-1))
    inputs["ref_per_token_logps"] = trl_logps(theirs, theirs.ref_model, inputs)
    if updates > 1:
        inputs["old_per_token_logps"] = trl_logps(theirs, theirs.model, inputs)
        # an update between sampling and loss, so that ratios are clipped on both sides
        disturb(ours.model, theirs.model, scale=0.01, seed=2)

    expected = theirs.compute_loss(theirs.model, inputs)
    expected.backward()
    loss, gradients = run_step(ours, batches)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-6)
    assert_same_gradients(gradients, gradients_of(theirs.model))
    metrics, their_metrics = ours._metrics["train"], theirs._metrics["train"]
    for name in {"kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"}:
        assert metrics[name] == pytest.approx(their_metrics[name], rel=1e-3, abs=1e-5), name
    assert metrics["kl"][0] > 1e-3
    if updates > 1 and objective == "grpo":
        assert metrics["clip_ratio/region_mean"][0] > 0
