"""Supervised fine-tuning on chains of thought with TRL's SFTTrainer and our rows.

The loss is on the assistant's tokens only (rationale, answer and end token), never on the question or visual tokens;
positions are ours, as in every other pass.

Shapes: B rows, L tokens of the longest row, P prompt tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from peft import PeftConfig
from transformers import PreTrainedModel, ProcessorMixin, TrainerCallback
from trl import SFTConfig, SFTTrainer

from ktr.data.row_sampler import RowSampler
from ktr.data.rows import Row
from ktr.data.worker_errors import carries_errors
from ktr.models.blank_media import NO_MEDIA, blank_media
from ktr.models.prompt_encoder import PromptEncoder
from ktr.training.data_wait import TimesData
from ktr.training.exact_resume import Resumable
from ktr.training.mixed_media import needs_blank_media, step_kinds
from ktr.training.packing import IGNORED_LABEL


class SupervisedCollator:
    """Rows to right-padded model inputs; decodes media, so it runs in the data loader's workers."""

    def __init__(
        self, encoder: PromptEncoder, rows: Sequence[Row], *, pad_token_id: int, blank_media: bool = False
    ) -> None:
        self.encoder = encoder
        self.rows = rows
        self.pad_token_id = pad_token_id
        self.blank_media = blank_media

    @carries_errors
    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        rows = [self.rows[example["index"]] for example in examples]
        prompts = [self.encoder.encode(row) for row in rows]
        targets = [torch.tensor(self.encoder.target_ids(row)) for row in rows]
        vision = self.encoder.family.forward_inputs(prompts)
        blank = blank_media(self.encoder.family, vision) if self.blank_media else NO_MEDIA
        longest = max(len(p.input_ids_P) + len(t) for p, t in zip(prompts, targets, strict=True))
        shape = (len(rows), longest + len(blank.token_ids))
        input_ids_BL = torch.full(shape, self.pad_token_id, dtype=torch.long)
        labels_BL = torch.full(shape, IGNORED_LABEL, dtype=torch.long)
        attention_mask_BL = torch.zeros(shape, dtype=torch.long)
        position_ids_3BL = torch.zeros(3, *shape, dtype=torch.long)
        input_ids_BL[0, longest:] = torch.tensor(blank.token_ids, dtype=torch.long)
        for b, (prompt, target) in enumerate(zip(prompts, targets, strict=True)):
            start, end = len(prompt.input_ids_P), len(prompt.input_ids_P) + len(target)
            input_ids_BL[b, :start] = prompt.input_ids_P
            input_ids_BL[b, start:end] = target
            labels_BL[b, start:end] = target
            attention_mask_BL[b, :end] = 1
            position_ids_3BL[:, b, :start] = prompt.position_ids_3P
            position_ids_3BL[:, b, start:end] = prompt.next_position + torch.arange(len(target))
        return {
            "input_ids": input_ids_BL,
            "attention_mask": attention_mask_BL,
            "position_ids": position_ids_3BL,
            "labels": labels_BL,
            **vision,
            **blank.inputs,
        }


class SupervisedTrainer(Resumable, TimesData, SFTTrainer):
    """TRL's trainer with our order of rows and one mean over the target tokens of a whole optimizer step."""

    def __init__(
        self,
        *args: Any,
        readable: Callable[[int], bool] | None = None,
        kinds: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.readable = readable
        self.kinds = kinds
        super().__init__(*args, **kwargs)
        # Transformers counts the tokens of all passes and ranks only for models that claim to take the count, and
        # Qwen's do not; TRL's loss takes it. Without it, short passes would weigh as much as long ones.
        self.model_accepts_loss_kwargs = True

    # Rows that cannot be read give their place to the next row, the same on every rank.
    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> RowSampler:
        # Steps of one kind are whole ones: the rows of all ranks and passes.
        step_rows = self.args.per_device_train_batch_size * self.args.world_size * self.args.gradient_accumulation_steps
        return RowSampler(
            len(self.train_dataset),
            seed=self.args.seed,
            batch_rows=1 if self.kinds is None else step_rows,
            kinds=self.kinds,
            readable=self.readable,
        )


def supervised_trainer(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    encoder: PromptEncoder,
    rows: Sequence[Row],
    arguments: SFTConfig,
    *,
    peft_config: PeftConfig | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    readable: Callable[[int], bool] | None = None,
    mixed_media: str = "auto",
) -> SupervisedTrainer:
    """TRL's trainer over `rows`; for `mixed_media` see `ktr.training.mixed_media`.

    Raises:
        ValueError: a row has no rationale to learn from.
    """
    missing = [row.id for row in rows if row.rationale is None and encoder.template.wants_rationale(row)]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(rows)} rows have no rationale, the first is row {missing[0]!r}: supervised "
            "fine-tuning needs chains of thought (data=video_r1_cot), or leave it out with stages=[rl,eval]"
        )
    return SupervisedTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"index": list(range(len(rows)))}),
        data_collator=SupervisedCollator(
            encoder,
            rows,
            pad_token_id=processor.tokenizer.pad_token_id,
            blank_media=needs_blank_media(mixed_media, arguments),
        ),
        processing_class=processor,
        peft_config=peft_config,
        callbacks=list(callbacks),
        readable=readable,
        kinds=step_kinds(mixed_media, rows),
    )
