"""Rollouts by transformers: every prompt is prefilled once and its cache shared by its G completions.

B prompts of a batch, P tokens of the longest of them (left padded), R rows of a decoding batch (one a completion),
C completion tokens, V vocabulary, S prompt and completion tokens so far.

The positions are the prompts' own, given explicitly to every forward: `generate` would number the completion by the
rule of the installed transformers, which differs for videos (see `ktr.models.positions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import Cache, DynamicCache, PreTrainedTokenizerBase

from ktr.models.attention import decoding_attention
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.families import Family, unwrap_model
from ktr.rollout.engine import Completion, SamplingSettings
from ktr.rollout.group_cache import expand_cache
from ktr.rollout.sampling import TokenSampler

END_TOKENS = ("<|im_end|>", "<|endoftext|>")
COMPACT_BELOW = 0.75
"""Ended rows leave the batch once the others are at most this share of it."""


@dataclass(frozen=True, eq=False)
class _Prefilled:
    """Prompts after their one forward: logits of the next token, cache, padding mask (None without padding)."""

    logits_BV: torch.Tensor
    cache: Cache
    mask_BP: torch.Tensor | None
    next_position_B: torch.Tensor


class TransformersRollout:
    """Samples with the policy itself, in its own process.

    Args:
        model: the policy, wrapped or not; sampling runs on the model inside, with its adapters.
        tokenizer: decodes completions and names the end tokens.
        family: for vision inputs and the ids that must not be drawn.
        max_batch_tokens: bound on the prompt and completion tokens of one batch, `rows * (P + max_new_tokens)`.
    """

    def __init__(
        self, model: nn.Module, tokenizer: PreTrainedTokenizerBase, family: Family, *, max_batch_tokens: int = 32768
    ) -> None:
        if max_batch_tokens < 1:
            raise ValueError(f"max_batch_tokens={max_batch_tokens} must be at least 1")
        self.model = model
        self.tokenizer = tokenizer
        self.family = family
        self.max_batch_tokens = max_batch_tokens

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion: those of the generation config, the tokenizer and the chat format."""
        configured = unwrap_model(self.model).generation_config.eos_token_id
        ids = set([configured] if isinstance(configured, int) else configured or [])
        vocabulary = self.tokenizer.get_vocab()
        ids.update(vocabulary[token] for token in END_TOKENS if token in vocabulary)
        if self.tokenizer.eos_token_id is not None:
            ids.add(self.tokenizer.eos_token_id)
        return tuple(sorted(ids))

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        num_completions: int,
        settings: SamplingSettings,
        seed: int,
        progress: bool = False,
    ) -> list[list[Completion]]:
        """`num_completions` completions of every prompt; see `RolloutEngine.generate`.

        All random numbers are drawn before the first token, by prompt and completion, so that a completion does not
        depend on which others share its batch.

        Raises:
            ValueError: a prompt leaves no room for `max_new_tokens` in the model's positions.
        """
        if num_completions < 1:
            raise ValueError(f"num_completions={num_completions} must be at least 1")
        for prompt in prompts:
            length = len(prompt.input_ids_P) + settings.max_new_tokens
            if length > self.family.max_positions:
                raise ValueError(
                    f"row {prompt.row.id!r}: prompt ({len(prompt.input_ids_P)} tokens) and completion "
                    f"({settings.max_new_tokens}) exceed the model's {self.family.max_positions} positions; lower "
                    "max_new_tokens, or the number of frames or pixels"
                )
        model = unwrap_model(self.model)
        sampler = TokenSampler(settings, self.family.placeholder_ids, next(model.parameters()).device)
        uniform = None
        if not settings.greedy:
            generator = torch.Generator().manual_seed(seed)
            shape = (len(prompts), num_completions, settings.max_new_tokens)
            uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        groups: list[list[Completion]] = [[] for _ in prompts]
        with (
            torch.no_grad(),
            evaluating(model),
            decoding_attention(model),
            tqdm(total=len(prompts), disable=not progress, desc="rollout") as bar,
        ):
            for batch in self._batches(prompts, num_completions, settings.max_new_tokens):
                prefilled = self._prefill(model, [prompts[index] for index in batch])
                rows = [(place, g) for place in range(len(batch)) for g in range(num_completions)]
                tokens = prefilled.cache.get_seq_length() + settings.max_new_tokens
                size = max(1, self.max_batch_tokens // tokens)
                for start in range(0, len(rows), size):
                    part = rows[start : start + size]
                    uniform_RC = None
                    if uniform is not None:
                        uniform_RC = torch.stack([uniform[batch[place], g] for place, g in part])
                    completions = self._decode(model, prefilled, [place for place, _ in part], uniform_RC, sampler)
                    for (place, _), completion in zip(part, completions, strict=True):
                        groups[batch[place]].append(completion)
                bar.update(len(batch))
        return groups

    def _batches(self, prompts: Sequence[EncodedPrompt], group: int, new_tokens: int) -> Iterator[list[int]]:
        """Indices of prompts that are prefilled together, of similar length, within the token budget."""
        batch: list[int] = []
        for index in sorted(range(len(prompts)), key=lambda index: len(prompts[index].input_ids_P)):
            longest = len(prompts[index].input_ids_P) + new_tokens
            if batch and (len(batch) + 1) * group * longest > self.max_batch_tokens:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _prefill(self, model: nn.Module, prompts: Sequence[EncodedPrompt]) -> _Prefilled:
        device = next(model.parameters()).device
        longest = max(len(prompt.input_ids_P) for prompt in prompts)
        pad_id = self.tokenizer.pad_token_id or 0
        input_ids_BP = torch.full((len(prompts), longest), pad_id)
        mask_BP = torch.zeros((len(prompts), longest), dtype=torch.long)
        position_ids_3BP = torch.zeros((3, len(prompts), longest), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            start = longest - len(prompt.input_ids_P)
            input_ids_BP[row, start:] = prompt.input_ids_P
            mask_BP[row, start:] = 1
            position_ids_3BP[:, row, start:] = prompt.position_ids_3P
        mask = None if bool(mask_BP.all()) else mask_BP.to(device)
        output = model(
            input_ids=input_ids_BP.to(device),
            attention_mask=mask,
            position_ids=position_ids_3BP.to(device),
            past_key_values=DynamicCache(),
            use_cache=True,
            logits_to_keep=1,
            **self.family.forward_inputs(prompts, device),
        )
        next_position_B = torch.tensor([prompt.next_position for prompt in prompts], device=device)
        return _Prefilled(output.logits[:, -1], output.past_key_values, mask, next_position_B)

    def _decode(
        self,
        model: nn.Module,
        prefilled: _Prefilled,
        prompt_of_row: Sequence[int],
        uniform_RC: torch.Tensor | None,
        sampler: TokenSampler,
    ) -> list[Completion]:
        """Completions of one batch of rows, all of the same prefilled prompts."""
        device = prefilled.logits_BV.device
        limit = sampler.settings.max_new_tokens
        end_ids = torch.tensor(self.end_ids, device=device)
        prompt_of_R = torch.tensor(prompt_of_row, device=device)
        rows = len(prompt_of_row)
        tokens_RC = torch.zeros((rows, limit), dtype=torch.long, device=device)
        logps_RC = torch.zeros((rows, limit), device=device)
        length_R = torch.full((rows,), limit, device=device)
        ended_R = torch.zeros(rows, dtype=torch.bool, device=device)
        if uniform_RC is not None:
            uniform_RC = uniform_RC.to(device)

        cache = expand_cache(prefilled.cache, prompt_of_R)
        logits_RV = prefilled.logits_BV[prompt_of_R]
        position_R = prefilled.next_position_B[prompt_of_R]
        mask_RS = None if prefilled.mask_BP is None else prefilled.mask_BP[prompt_of_R]
        live = torch.arange(rows, device=device)
        for step in range(limit):
            drawn, logps = sampler.draw(logits_RV, None if uniform_RC is None else uniform_RC[live, step])
            tokens_RC[live, step], logps_RC[live, step] = drawn, logps
            ends = torch.isin(drawn, end_ids)
            first_end = ends & ~ended_R[live]
            length_R[live[first_end]] = step + 1
            ended_R[live[first_end]] = True
            if step + 1 == limit:
                break
            going = (~ended_R[live]).nonzero()[:, 0]
            if len(going) == 0:
                break
            if len(going) <= COMPACT_BELOW * len(live):
                live, drawn = live[going], drawn[going]
                cache.batch_select_indices(going)
                mask_RS = None if mask_RS is None else mask_RS[going]
            if mask_RS is not None:
                mask_RS = torch.cat([mask_RS, mask_RS.new_ones(len(live), 1)], dim=1)
            output = model(
                input_ids=drawn[:, None],
                attention_mask=mask_RS,
                position_ids=(position_R[live] + step).expand(3, -1)[..., None],
                past_key_values=cache,
                use_cache=True,
            )
            logits_RV = output.logits[:, -1]
        return self._completions(tokens_RC.cpu(), logps_RC.cpu(), length_R.tolist(), ended_R.tolist())

    def _completions(
        self, tokens_RC: torch.Tensor, logps_RC: torch.Tensor, lengths: Sequence[int], ended: Sequence[bool]
    ) -> list[Completion]:
        ids = [tuple(row[:length]) for row, length in zip(tokens_RC.tolist(), lengths, strict=True)]
        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return [
            Completion(token_ids, text, tuple(logps[:length]), not end)
            for token_ids, text, logps, length, end in zip(ids, texts, logps_RC.tolist(), lengths, ended, strict=True)
        ]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
