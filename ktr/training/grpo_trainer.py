"""GRPO on whole groups: packed scoring, key tokens, our objective, inside TRL's GRPOTrainer.

TRL keeps construction (reference model, PEFT, DDP and DeepSpeed preparation), samplers, optimizer, checkpoints and
logging. Its sampler, step inputs, rollout and loss are ours, because TRL's take rows of a group apart, read images only
and repeat the prompt for every completion.

Shapes: N completions of a micro-batch (whole groups of G), C tokens of the longest completion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import PeftConfig
from torch import nn
from transformers import PreTrainedModel, ProcessorMixin, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ktr.attribution.settings import KeyTokenSettings
from ktr.attribution.weights import share_metrics
from ktr.data.row_sampler import RowSampler
from ktr.data.rows import Row
from ktr.models.attention import set_text_attention, text_attention
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.families import unwrap_model
from ktr.models.feature_store import FeatureStore
from ktr.models.loading import vision_is_frozen
from ktr.models.prompt_encoder import PromptEncoder
from ktr.rewards.runner import RewardFailure, RewardRunner
from ktr.rollout.engine import RolloutEngine, SamplingSettings
from ktr.training.advantages import GroupAdvantages
from ktr.training.arguments import refuse_unsupported
from ktr.training.data_wait import TimesData
from ktr.training.exact_resume import Resumable
from ktr.training.group_batch import GroupBatch, PromptCollator
from ktr.training.key_tokens import KeyTokenAttributor
from ktr.training.mixed_media import needs_blank_media, shards_weights, step_kinds, whole_weights
from ktr.training.objective import LossDenominators, MaskedMean, policy_loss
from ktr.training.objective_settings import ObjectiveSettings
from ktr.training.reward_watch import RewardWatch
from ktr.training.rollout_records import completion_rows, gathered_metrics
from ktr.training.rollouts import GroupSampler, Rollout
from ktr.training.run_folder import RunFolder
from ktr.training.sampled_groups import SampledGroup
from ktr.training.scoring import GroupScorer, ScoringGroup, TokenScores, encode_once, valid_tokens
from ktr.training.shuffled_rollouts import ShuffledRollouts, wants_shuffled

# Objectives whose mean is over tokens, so that selected tokens must be counted over the whole step.
TOKEN_MEANS = ("bnpo", "dapo", "cispo")


class KeyTokenGRPOTrainer(Resumable, TimesData, GRPOTrainer):
    """GRPO whose token objective is weighted by key tokens; `key_tokens` without signals is plain GRPO.

    Args:
        model: loaded policy; `peft_config` adds adapters to it, and the reference is then the policy without them.
        rollout: builds the engine from the (PEFT-wrapped) policy.
        rewards: scores completions; None from a component abstains.
        readable: whether the row of an index can be used; None uses all (see `RowSampler`).
        zero_variance: `keep` groups whose rewards are all equal (they still carry the KL term), `mask` them, or
            `resample` their completions up to `resample_limit` times and mask those that are still equal.
        alarm_steps: steps after which a reward that is the same on all completions is warned about.
        mixed_media: what a step does with rows of different kinds, see `ktr.training.mixed_media`.

    Under ZeRO-3, passes without gradient see gathered weights, so they may differ between ranks; those with gradient
    are made as many on every rank, and token weights are computed before them.
    """

    folder: RunFolder
    _buffered_inputs: list[GroupBatch] | None

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
        resample_limit: int = 1,
        alarm_steps: int = 50,
        log_completions_every: int = 1,
        mixed_media: str = "auto",
        readable: Callable[[int], bool] | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        refuse_unsupported(arguments, objective, sampling)
        if arguments.fsdp:
            raise ValueError("FSDP is for SFT alone here: sampling needs whole weights; use DeepSpeed or plain DDP")
        compares_orders = wants_shuffled(rewards)
        self.readable = readable
        self.row_kinds = step_kinds(mixed_media, rows)
        super().__init__(
            model=model,
            reward_funcs=[_rewards_are_ours],
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": row.question, "index": i} for i, row in enumerate(rows)]),
            processing_class=processor,
            peft_config=peft_config,
            callbacks=list(callbacks),
        )
        if self.ref_model is not None:
            set_text_attention(unwrap_model(self.ref_model), text_attention(unwrap_model(self.model)))
        self.data_collator = PromptCollator(encoder, rows, self.num_generations)
        self.family = encoder.family
        self.scorer = GroupScorer(
            encoder.family,
            pad_token_id=processor.tokenizer.pad_token_id,
            max_packed_tokens=max_packed_tokens,
            packing=packing,
            blank_media=needs_blank_media(mixed_media, arguments) and not vision_is_frozen(self.model),
        )
        self.weights_sharded = shards_weights(arguments)
        self.attributor = KeyTokenAttributor(self.scorer, encoder, key_tokens, seed=arguments.seed)
        self.objective = objective
        self.counts_selected = (
            objective.normalize == "selected" and objective.objective in TOKEN_MEANS and bool(key_tokens.signals)
        )
        self.engine = rollout(self.model)
        comparison = None
        if compares_orders:
            half = self.num_generations // 2
            comparison = ShuffledRollouts(encoder, rewards, num_completions=half, seed=arguments.seed)
        self.group_sampler = GroupSampler(
            self.engine,
            rewards,
            sampling,
            num_completions=self.num_generations,
            scale=scale_advantages,
            seed=arguments.seed,
            rank=self.accelerator.process_index,
            resample_limit=resample_limit if zero_variance == "resample" else 0,
            shuffled=comparison,
            autocast=self.accelerator.autocast,
        )
        self.reward_watch = RewardWatch(alarm_steps, is_main=folder.is_main)
        self.folder = folder
        # A tower that does not learn is run once a prompt: policy, reference and views share its features.
        self.vision_frozen = vision_is_frozen(self.model)
        self.feature_store: FeatureStore | None = None
        if self.vision_frozen and encoder.frame_store is not None and not self.weights_sharded:
            self.feature_store = FeatureStore(encoder.frame_store.store, self.model, encoder.family, processor)
        self.zero_variance = zero_variance
        self.log_completions_every = log_completions_every
        self._loss_metrics: list[dict[str, MaskedMean]] = []
        self._key_counts: list[Mapping[str, int]] = []

    def own_state(self) -> dict[str, Any]:
        assert self._step % (self.args.steps_per_generation * self.num_iterations) == 0, "completions wait for updates"
        return {"passes": self._step, "reward_watch": self.reward_watch.state()}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self._step = state["passes"]
        self.reward_watch.load_state(state["reward_watch"])

    # Rows that cannot be read give their place to the next row, the same on every rank.
    def _get_train_sampler(self, dataset: Dataset | None = None) -> RowSampler:
        return RowSampler(
            len(self.train_dataset),
            seed=self.args.seed,
            batch_rows=self.args.generation_batch_size // self.num_generations,
            group_size=self.num_generations,
            passes=self.num_iterations * self.args.steps_per_generation,
            kinds=self.row_kinds,
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
        with (
            whole_weights(self.model_wrapped, self.accelerator),
            whole_weights(self.ref_model, self.accelerator),
        ):
            try:
                rollout = self.group_sampler(prompts, step)
            except RewardFailure as failure:
                self._note_reward_errors(failure.lines)
                raise
            sampled, advantages = rollout.sampled, rollout.advantages
            self._log_rollout(rollout, step)
            size = len(sampled) // self.args.steps_per_generation
            batches = [
                self._group_batch(sampled, advantages, range(start, start + size), step)
                for start in range(0, len(sampled), size)
            ]
        denominators = self._denominators(sampled, batches)
        for batch in batches:
            batch.denominators = denominators
        return batches

    @torch.no_grad()
    def _group_batch(
        self, sampled: Sequence[SampledGroup], advantages: GroupAdvantages, of_pass: range, step: int
    ) -> GroupBatch:
        """The groups `of_pass` that carry loss, with the log-probs that stay fixed while they serve."""
        # A kept group without spread has its KL term, and its selected tokens in the mean.
        held = self.zero_variance == "keep" and (self.objective.beta != 0.0 or self.counts_selected)
        loaded = [g for g in of_pass if held or not advantages.zero_variance_N[g]]
        chosen = loaded or [of_pass[0]]
        groups = [ScoringGroup(sampled[g].prompt, tuple(r.token_ids for r in sampled[g].completions)) for g in chosen]
        if not loaded:
            groups = [_stand_in(groups[0])]
        elif self.vision_frozen:
            with self.accelerator.autocast():
                groups = encode_once(self.family, self.model, groups, self.feature_store)
        valid_NC = valid_tokens(groups, self.accelerator.device)
        batch = GroupBatch(
            groups=groups,
            advantages_N=advantages.advantages_NG[chosen].reshape(-1).to(valid_NC.device),
            carries_loss=bool(loaded),
            sampled_at=step,
            weights_NC=torch.zeros(valid_NC.shape, device=valid_NC.device),
        )
        if not loaded:
            batch.ref_logps_NC = batch.weights_NC
            return batch
        if self.objective.beta:
            batch.ref_logps_NC = self._reference_logps(groups)
        weights_first = self._weights_come_first(groups)
        if self.num_iterations > 1 or weights_first:
            policy = self.scorer.score(self.model, groups, capture_vision=not self.vision_frozen)
            if self.num_iterations > 1:
                batch.old_logps_NC = policy.logps_NC
            if weights_first:
                batch.weights_NC = self._weights(self.model, groups, policy, valid_NC, step)
                batch.attributed = True
        return batch

    def _weights_come_first(self, groups: Sequence[ScoringGroup]) -> bool:
        """Whether weights cannot wait for the pass with gradient, which sees one piece of the step at a time."""
        split = sum(len(piece) for piece in self._pieces(groups)) > len(groups)
        return self.counts_selected or self.weights_sharded or (split and self.attributor.settings.scope == "group")

    def _reference_logps(self, groups: Sequence[ScoringGroup]) -> torch.Tensor:
        if self.ref_model is not None:
            return self.scorer.score(self.ref_model, groups).logps_NC
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self.scorer.score(self.model, groups).logps_NC

    def _denominators(self, sampled: Sequence[SampledGroup], batches: Sequence[GroupBatch]) -> LossDenominators:
        """Counts of a whole optimizer step, so that its pieces, passes and ranks add up to one mean.

        All sampled completions count, those without loss too, as in plain GRPO.
        """
        tokens = selected = sum(len(reply.token_ids) for group in sampled for reply in group.completions)
        if self.counts_selected:
            selected = sum(int((batch.weights_NC > 0).sum()) for batch in batches)
        counts = torch.tensor(
            [len(sampled) * self.num_generations, selected, selected if self.objective.mask_kl else tokens],
            dtype=torch.float64,
            device=self.accelerator.device,
        )
        if self.objective.objective != "bnpo":  # bnpo's mean is over this rank's own tokens
            counts = self.accelerator.reduce(counts, reduction="mean")
        return LossDenominators(*counts.tolist())

    # Packed rows, token weights and objectives that TRL does not have.
    def _compute_loss(self, model: nn.Module, inputs: GroupBatch) -> torch.Tensor:
        *earlier, last = self._pieces(inputs.groups)
        awaited = self._awaited_forwards(inputs.groups)
        done = torch.zeros((), device=self.accelerator.device)
        for piece in earlier:
            # The graph of a piece is freed before the next is built; only the last one synchronises gradients.
            with self.accelerator.no_sync(model):
                loss = self._piece_loss(model, inputs, piece)
                self.accelerator.backward(loss)
                done += loss.detach()
        loss = done + self._piece_loss(model, inputs, last)
        for _ in range(awaited):
            loss = loss + 0.0 * self.scorer.score(model, [_stand_in(inputs.groups[0])]).logps_NC.sum()
        inputs.attributed = True
        if self.accelerator.sync_gradients:
            self._log_loss()
        return loss

    def _awaited_forwards(self, groups: Sequence[ScoringGroup]) -> int:
        """How many more forwards other ranks make than this one, where they wait for it in each."""
        if not self.weights_sharded:
            return 0
        own = len(self.scorer.forwards(groups))
        return int(max(gather_object([own]))) - own

    def _pieces(self, groups: Sequence[ScoringGroup]) -> list[dict[int, list[int]]]:
        """Completions by group that are scored by one forward and differentiated before the next, to bound memory.

        DeepSpeed and FSDP synchronise gradients at every backward, so there all completions are one piece.
        """
        forwards = self.scorer.forwards(groups)
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            forwards = [[row for rows in forwards for row in rows]]
        pieces: list[dict[int, list[int]]] = [{} for _ in forwards]
        for piece, rows in zip(pieces, forwards, strict=True):
            for row in rows:
                piece.setdefault(row.group, []).extend(row.completions)
        return pieces

    def _piece_loss(self, model: nn.Module, inputs: GroupBatch, piece: dict[int, list[int]]) -> torch.Tensor:
        groups = [
            replace(inputs.groups[g], completions=tuple(inputs.groups[g].completions[i] for i in members))
            for g, members in piece.items()
        ]
        chosen_N = torch.tensor([g * self.num_generations + i for g, members in piece.items() for i in members])
        valid_NC = valid_tokens(groups, self.accelerator.device)
        width = valid_NC.shape[1]
        full = self.scorer.score(model, groups, capture_vision=not self.vision_frozen)
        if inputs.carries_loss and not inputs.attributed:
            inputs.weights_NC[chosen_N, :width] = self._weights(model, groups, full, valid_NC, inputs.sampled_at)
        output = policy_loss(
            full.logps_NC,
            None if inputs.old_logps_NC is None else inputs.old_logps_NC[chosen_N, :width],
            None if inputs.ref_logps_NC is None else inputs.ref_logps_NC[chosen_N, :width],
            inputs.advantages_N[chosen_N],
            valid_NC & inputs.carries_loss,
            inputs.weights_NC[chosen_N, :width],
            self.objective,
            denominators=inputs.denominators,
            entropies_BC=full.entropy_NC,
        )
        self._loss_metrics.append(output.metrics)
        return output.loss

    def _weights(
        self, model: nn.Module, groups: Sequence[ScoringGroup], full: TokenScores, valid_NC: torch.Tensor, step: int
    ) -> torch.Tensor:
        found = self.attributor.attribute(model, groups, full, valid_NC, step=step)
        self._key_counts.extend(attribution.weights.counts for attribution in found)
        return torch.cat([attribution.weights.weights_GC for attribution in found])

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

    def _log_rollout(self, rollout: Rollout, step: int) -> None:
        for name, value in {**gathered_metrics(rollout), **self.reward_watch(rollout.table)}.items():
            self._metrics["train"][name].append(value)
        self._note_reward_errors(gather_object(rollout.errors))
        if step % self.log_completions_every == 0:
            for row in gather_object(completion_rows(rollout, step)):
                self.folder.append(self.folder.completions, row)

    def _note_reward_errors(self, lines: Sequence[dict[str, Any]]) -> None:
        for line in lines:
            self.folder.append(self.folder.path / "reward_errors.jsonl", line)


def _stand_in(group: ScoringGroup) -> ScoringGroup:
    """A short group that makes a forward: one completion, no media."""
    return replace(group, completions=group.completions[:1], features=None, drop_visual=True)


def _rewards_are_ours(*args: Any, **kwargs: Any) -> list[float]:
    """TRL insists on a reward function; rewards come from the `RewardRunner`."""
    raise AssertionError("TRL's own reward path was called")
