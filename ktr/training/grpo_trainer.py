"""GRPO on whole groups: packed scoring, key tokens, our objective, inside TRL's GRPOTrainer.

TRL keeps construction (reference model, PEFT, DDP and DeepSpeed preparation), samplers, optimizer, checkpoints and
logging. Its sampler, step inputs, rollout and loss are ours, because TRL's take rows of a group apart, read images only
and repeat the prompt for every completion.

Shapes: N completions of a micro-batch (whole groups of G), C tokens of the longest completion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import PeftConfig
from torch import nn
from transformers import PreTrainedModel, ProcessorMixin, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ktr.attribution.settings import KeyTokenSettings
from ktr.attribution.views import shuffle_seed
from ktr.attribution.weights import share_metrics
from ktr.data.row_sampler import RowSampler
from ktr.data.rows import Row
from ktr.models.loading import vision_is_frozen
from ktr.models.prompt_encoder import EncodedPrompt, PromptEncoder
from ktr.rewards.runner import RewardRunner, RewardTable
from ktr.rollout.engine import RolloutEngine, SamplingSettings
from ktr.training.advantages import GroupAdvantages, group_advantages
from ktr.training.key_tokens import Attribution, KeyTokenAttributor
from ktr.training.objective import LossDenominators, MaskedMean, count_denominators, policy_loss
from ktr.training.objective_settings import ObjectiveSettings
from ktr.training.packing import row_length
from ktr.training.run_folder import RunFolder
from ktr.training.sampled_groups import SampledGroup, completion_rows, gathered_metrics, reward_columns
from ktr.training.scoring import GroupScorer, ScoringGroup, encode_once, valid_tokens

# TRL options that change sampling, rewards or the loss in methods replaced here, with the value that leaves them off.
UNSUPPORTED = {
    "use_vllm": False,
    "use_transformers_continuous_batching": False,
    "mask_truncated_completions": False,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "off_policy_mask_threshold": None,
    "use_bias_correction_kl": False,
    "multi_objective_aggregation": "sum_then_normalize",
    "importance_sampling_level": "token",
    "repetition_penalty": 1.0,
    "min_p": None,
    "generation_kwargs": None,
    "num_generations_eval": None,
    "log_completions": False,
}


@dataclass(eq=False)
class GroupBatch:
    """What one forward and backward works on: whole groups with their advantages and fixed log-probs."""

    groups: list[ScoringGroup]
    advantages_N: torch.Tensor
    carries_loss: list[bool]
    completions_in_step: float
    tokens_in_step: float
    sampled_at: int
    ref_logps_NC: torch.Tensor | None = None
    old_logps_NC: torch.Tensor | None = None
    attributions: dict[int, Attribution] = field(default_factory=dict)


class PromptCollator:
    """Encoded prompts of a generation batch, one a group; runs in the data loader's workers."""

    def __init__(self, encoder: PromptEncoder, rows: Sequence[Row], group_size: int) -> None:
        self.encoder = encoder
        self.rows = rows
        self.group_size = group_size

    def __call__(self, examples: Sequence[dict[str, Any]]) -> list[EncodedPrompt]:
        return [self.encoder.encode(self.rows[example["index"]]) for example in examples[:: self.group_size]]


class KeyTokenGRPOTrainer(GRPOTrainer):
    """GRPO whose token objective is weighted by key tokens; `key_tokens` without signals is plain GRPO.

    Args:
        model: loaded policy; `peft_config` adds adapters to it, and the reference is then the policy without them.
        rollout: builds the engine from the (PEFT-wrapped) policy.
        rewards: scores completions; None from a component abstains.
        readable: whether the row of an index can be used; None uses all (see `RowSampler`).
        zero_variance: `keep` groups whose rewards are all equal (they still carry the KL term) or `mask` them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        encoder: PromptEncoder,
        rows: Sequence[Row],
        arguments: GRPOConfig,
        *,
        rollout: Callable[[nn.Module], RolloutEngine],
        sampling: SamplingSettings,
        rewards: RewardRunner,
        key_tokens: KeyTokenSettings,
        objective: ObjectiveSettings,
        folder: RunFolder,
        max_packed_tokens: int,
        packing: bool = True,
        scale_advantages: str = "group",
        zero_variance: str = "keep",
        log_completions_every: int = 1,
        readable: Callable[[int], bool] | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        refuse_unsupported(arguments)
        self.rewards = rewards
        self.readable = readable
        super().__init__(
            model=model,
            reward_funcs=[_rewards_are_ours],
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": row.question, "index": i} for i, row in enumerate(rows)]),
            processing_class=processor,
            peft_config=peft_config,
            callbacks=list(callbacks),
        )
        self.data_collator = PromptCollator(encoder, rows, self.num_generations)
        self.family = encoder.family
        self.scorer = GroupScorer(
            encoder.family,
            pad_token_id=processor.tokenizer.pad_token_id,
            max_packed_tokens=max_packed_tokens,
            packing=packing,
        )
        self.attributor = KeyTokenAttributor(self.scorer, encoder, key_tokens, seed=arguments.seed)
        self.objective = objective
        self.sampling = sampling
        self.engine = rollout(self.model)
        self.folder = folder
        # A tower that does not learn is run once a prompt: policy, reference and views share its features.
        self.vision_frozen = vision_is_frozen(self.model)
        self.scale_advantages = scale_advantages
        self.zero_variance = zero_variance
        self.log_completions_every = log_completions_every
        self._loss_metrics: list[dict[str, MaskedMean]] = []
        self._key_counts: list[Mapping[str, int]] = []

    # Rows that cannot be read give their place to the next row, the same on every rank.
    def _get_train_sampler(self, dataset: Dataset | None = None) -> RowSampler:
        return RowSampler(
            len(self.train_dataset),
            seed=self.args.seed,
            batch_rows=self.args.generation_batch_size // self.num_generations,
            group_size=self.num_generations,
            passes=self.num_iterations * self.args.steps_per_generation,
            readable=self.readable,
        )

    # Groups stay whole: TRL shuffles single rows between the micro-batches of a generation batch.
    def _prepare_inputs(self, generation_batch: list[EncodedPrompt]) -> GroupBatch:
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0 or self._buffered_inputs is None:
            self._buffered_inputs = self._generate_and_score_completions(generation_batch)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    # One prompt a group, videos too, and rewards that may abstain or fail.
    def _generate_and_score_completions(self, prompts: list[EncodedPrompt]) -> list[GroupBatch]:
        step = self.state.global_step
        seed = shuffle_seed(self.args.seed, step, f"rollout {self.accelerator.process_index}")
        completions = self.engine.generate(prompts, self.num_generations, self.sampling, seed)
        sampled = [SampledGroup(prompt, replies) for prompt, replies in zip(prompts, completions, strict=True)]
        table = self.rewards.score(
            [group.prompt.row.question for group in sampled for _ in group.completions],
            [reply.text for group in sampled for reply in group.completions],
            **reward_columns(sampled),
        )
        rewards = [float("nan") if total is None else total for total in table.total]
        advantages = group_advantages(
            torch.tensor(rewards).view(len(sampled), self.num_generations), scale=self.scale_advantages
        )
        self._log_rollout(sampled, table, advantages, step)
        size = len(sampled) // self.args.steps_per_generation
        return [
            self._group_batch(sampled[start : start + size], advantages, start, step)
            for start in range(0, len(sampled), size)
        ]

    # Packed rows, token weights and objectives that TRL does not have.
    def _compute_loss(self, model: nn.Module, inputs: GroupBatch) -> torch.Tensor:
        *earlier, last = self._pieces(inputs)
        for piece in earlier:
            # The graph of a piece is freed before the next is built; only the last one synchronises gradients.
            with model.no_sync() if hasattr(model, "no_sync") else nullcontext():
                self.accelerator.backward(self._piece_loss(model, inputs, piece))
        loss = self._piece_loss(model, inputs, last)
        self._log_loss()
        return loss

    def _pieces(self, inputs: GroupBatch) -> list[list[int]]:
        """Indices of groups forwarded and differentiated together: whole groups, as many as the token budget holds."""
        loaded = [g for g, carries in enumerate(inputs.carries_loss) if carries] or [0]
        counts_selected = self.objective.normalize == "selected" and self.objective.objective in ("bnpo", "dapo", "cispo")
        if self.is_deepspeed_enabled or self.is_fsdp_enabled or counts_selected:
            return [loaded]
        pieces: list[list[int]] = [[]]
        used = 0
        for g in loaded:
            group = inputs.groups[g]
            tokens = row_length(len(group.prompt.input_ids_P), [len(ids) for ids in group.completions])
            if pieces[-1] and used + tokens > self.scorer.max_packed_tokens:
                pieces.append([])
                used = 0
            pieces[-1].append(g)
            used += tokens
        return pieces

    def _piece_loss(self, model: nn.Module, inputs: GroupBatch, piece: Sequence[int]) -> torch.Tensor:
        groups = [inputs.groups[g] for g in piece]
        needed = [inputs.carries_loss[g] for g in piece]
        valid_NC = valid_tokens(groups, self.accelerator.device)
        full = self.scorer.score(model, groups, capture_vision=not self.vision_frozen)
        if any(g not in inputs.attributions for g in piece):
            found = self.attributor.attribute(model, groups, full, valid_NC, step=inputs.sampled_at, needed=needed)
            inputs.attributions.update(zip(piece, found, strict=True))
            self._key_counts.extend(a.weights.counts for a, carries in zip(found, needed, strict=True) if carries)
        weights_NC = torch.cat([inputs.attributions[g].weights.weights_GC for g in piece])
        chosen_N = torch.tensor([g * self.num_generations + i for g in piece for i in range(self.num_generations)])
        valid_NC = valid_NC & torch.tensor(needed, device=valid_NC.device).repeat_interleave(self.num_generations)[:, None]
        output = policy_loss(
            full.logps_NC,
            _rows(inputs.old_logps_NC, chosen_N, valid_NC),
            _rows(inputs.ref_logps_NC, chosen_N, valid_NC),
            inputs.advantages_N[chosen_N],
            valid_NC,
            weights_NC,
            self.objective,
            denominators=self._denominators(inputs, valid_NC, weights_NC),
            entropies_BC=full.entropy_NC,
        )
        self._loss_metrics.append(output.metrics)
        return output.loss

    def _denominators(self, inputs: GroupBatch, valid_NC: torch.Tensor, weights_NC: torch.Tensor) -> LossDenominators:
        """Of the whole optimizer step, so that its pieces, micro-batches and ranks add up to one mean."""
        tokens = policy_tokens = inputs.tokens_in_step
        if self.objective.normalize == "selected":
            counted = count_denominators(valid_NC, weights_NC, self.objective)
            accumulation = self.current_gradient_accumulation_steps
            policy_tokens = counted.policy_tokens * accumulation
            tokens = counted.kl_tokens * accumulation
        return LossDenominators(inputs.completions_in_step, policy_tokens, tokens)

    def _log_loss(self) -> None:
        names = sorted({name for metrics in self._loss_metrics for name in metrics})
        totals = torch.zeros(len(names), 2, device=self.accelerator.device)
        for metrics in self._loss_metrics:
            for i, name in enumerate(names):
                if name in metrics:
                    totals[i] += torch.stack(list(metrics[name]))
        totals = self.accelerator.reduce(totals, reduction="sum")
        for name, (total, count) in zip(names, totals.tolist(), strict=True):
            if count:
                self._metrics["train"][name].append(total / count)
        for name, share in share_metrics(gather_object(self._key_counts)).items():
            self._metrics["train"][f"key_tokens/{name}"].append(share)
        self._loss_metrics, self._key_counts = [], []

    def _log_rollout(
        self, sampled: Sequence[SampledGroup], table: RewardTable, advantages: GroupAdvantages, step: int
    ) -> None:
        for name, values in gathered_metrics(sampled, table, advantages).items():
            self._metrics["train"][name].append(values)
        if step % self.log_completions_every == 0:
            for row in completion_rows(sampled, table, advantages, step):
                self.folder.append(self.folder.completions, row)

    def _group_batch(
        self, sampled: Sequence[SampledGroup], advantages: GroupAdvantages, start: int, step: int
    ) -> GroupBatch:
        device = self.accelerator.device
        chosen = slice(start, start + len(sampled))
        equal = advantages.zero_variance_N[chosen].tolist()
        carries_loss = [
            not flat or (self.zero_variance == "keep" and self.objective.beta != 0.0) for flat in equal
        ]
        groups = [ScoringGroup(g.prompt, tuple(reply.token_ids for reply in g.completions)) for g in sampled]
        if self.vision_frozen:
            groups = encode_once(self.family, self.model, groups)
        tokens = torch.tensor(
            [sum(len(ids) for g in groups for ids in g.completions), len(groups) * self.num_generations], device=device
        ).float()
        tokens = self.accelerator.reduce(tokens, reduction="sum") / self.accelerator.num_processes
        accumulation = self.current_gradient_accumulation_steps
        batch = GroupBatch(
            groups=groups,
            advantages_N=advantages.advantages_NG[chosen].reshape(-1).to(device),
            carries_loss=carries_loss,
            completions_in_step=float(tokens[1]) * accumulation,
            tokens_in_step=float(tokens[0]) * accumulation,
            sampled_at=step,
        )
        with torch.no_grad():
            if self.objective.beta:
                batch.ref_logps_NC = self._reference_logps(groups)
            if self.num_iterations > 1 or self.args.steps_per_generation > self.args.gradient_accumulation_steps:
                batch.old_logps_NC = self.scorer.score(self.model, groups).logps_NC
        return batch

    def _reference_logps(self, groups: Sequence[ScoringGroup]) -> torch.Tensor:
        if self.ref_model is not None:
            return self.scorer.score(self.ref_model, groups).logps_NC
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self.scorer.score(self.model, groups).logps_NC


def refuse_unsupported(arguments: GRPOConfig) -> None:
    """Raises ValueError for a TRL option that the methods replaced here would silently ignore."""
    for name, off in UNSUPPORTED.items():
        value = getattr(arguments, name)
        if value != off:
            raise ValueError(
                f"TRL's option {name}={value!r} has no effect in packed group training; leave it at {off!r}"
            )
    if arguments.per_device_train_batch_size % arguments.num_generations:
        raise ValueError(
            f"per_device_train_batch_size={arguments.per_device_train_batch_size} must hold whole groups of "
            f"num_generations={arguments.num_generations}"
        )


def _rewards_are_ours(*args: Any, **kwargs: Any) -> list[float]:
    """TRL insists on a reward function; rewards come from the `RewardRunner`."""
    raise AssertionError("TRL's own reward path was called")


def _rows(values_NC: torch.Tensor | None, chosen_N: torch.Tensor, like_NC: torch.Tensor) -> torch.Tensor | None:
    return None if values_NC is None else values_NC[chosen_N][:, : like_NC.shape[1]]
