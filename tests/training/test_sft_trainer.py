"""Supervised fine-tuning learns the assistant's tokens and nothing else, at the encoder's positions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_models import FAMILIES
from trainer_cases import (
    Gradients,
    assert_same_gradients,
    gradients_of,
    make_encoder,
    make_rows,
    make_sft_trainer,
    without_times,
)

from ktr.data.prompts import PromptTemplate
from ktr.data.row_sampler import ReadableRows
from ktr.data.tasks import task_rows
from ktr.models.loading import load_model
from ktr.models.lora import lora_config
from ktr.training.callbacks import MetricsFile
from ktr.training.packing import IGNORED_LABEL
from ktr.training.sft_trainer import SupervisedCollator


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Video, image and text rows with rationales of different lengths."""
    root = tmp_path_factory.mktemp("rows")
    rows = make_rows(root)
    return root, [replace(row, rationale="I see red " * (i + 1) + ".") for i, row in enumerate(rows)]


def train(checkpoint, rows, **options):
    kept = Gradients()
    trainer = make_sft_trainer(checkpoint, *rows, callbacks=[kept], **options)
    trainer.train()
    metrics = next(c for c in trainer.callback_handler.callbacks if isinstance(c, MetricsFile)).folder.read_metrics()
    return trainer, metrics, kept.steps


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_are_the_assistants_tokens_and_positions_the_encoders(checkpoints, rows, family):
    root, known = rows
    loaded = load_model(checkpoints[family])
    encoder = make_encoder(loaded, root)
    batch = SupervisedCollator(encoder, known, pad_token_id=7)([{"index": i} for i in range(4)])
    visual = set(encoder.family.pad_ids)
    longest = 0
    for b, row in enumerate(known):
        prompt, target = encoder.encode(row), encoder.target_ids(row)
        start, end = len(prompt), len(prompt) + len(target)
        longest = max(longest, end)
        labels = batch["labels"][b]
        assert int((labels != IGNORED_LABEL).sum()) == len(target)
        assert labels[start:end].tolist() == target and not visual & set(target)
        assert batch["input_ids"][b, :end].tolist() == prompt.input_ids_P.tolist() + target
        assert batch["input_ids"][b, end:].tolist() == [7] * (batch["input_ids"].shape[1] - end)
        assert batch["attention_mask"][b].tolist() == [1] * end + [0] * (batch["input_ids"].shape[1] - end)
        assert torch.equal(batch["position_ids"][:, b, :start], prompt.position_ids_3P)
        following = prompt.next_position + torch.arange(len(target))
        assert torch.equal(batch["position_ids"][:, b, start:end], following.expand(3, -1))
        text = loaded.processor.tokenizer.decode(target)
        assert text == f"<think>{row.rationale}</think><answer>red</answer><|im_end|>"
    assert batch["input_ids"].shape[1] == longest
    assert batch["video_grid_thw"].tolist() == [list(encoder.encode(known[i]).grid_thw) for i in (0, 3)]
    assert len(batch["image_grid_thw"]) == 1


def test_tasks_of_one_batch_have_their_own_prompts_and_replies(checkpoints, rows):
    """Captions, a direct answer and reasoning: three instructions, one batch and so one loss."""
    root, known = rows
    loaded = load_model(checkpoints["qwen2_5_vl"])
    encoder = make_encoder(loaded, root)
    encoder.template = PromptTemplate.load("toy")
    tasks = task_rows([replace(known[0], captions="it moves.")], ["captioning", "direct", "reasoning"])
    batch = SupervisedCollator(encoder, tasks, pad_token_id=7)([{"index": i} for i in range(3)])
    taught = [loaded.processor.tokenizer.decode(labels[labels != IGNORED_LABEL].tolist()) for labels in batch["labels"]]
    assert taught == [
        "<answer>it moves.</answer><|im_end|>", "<answer>red</answer><|im_end|>",
        "<think>I see red .</think><answer>red</answer><|im_end|>",
    ]  # fmt: skip
    assert len(batch["video_grid_thw"]) == 3 and len({len(encoder.encode(task)) for task in tasks}) == 3


def hand_made(checkpoint, rows):
    """Mean cross-entropy of all target tokens and its gradients, one row after another through the plain forward."""
    root, known = rows
    loaded = load_model(checkpoint, freeze_vision=False)
    encoder = make_encoder(loaded, root)
    total, count = 0.0, 0
    for row in known:
        prompt, target = encoder.encode(row), torch.tensor(encoder.target_ids(row))
        following = (prompt.next_position + torch.arange(len(target))).expand(3, -1)
        logits = loaded.model(
            input_ids=torch.cat([prompt.input_ids_P, target])[None],
            position_ids=torch.cat([prompt.position_ids_3P, following], 1)[:, None],
            **loaded.family.forward_inputs([prompt]),
        ).logits[0]
        predicted = logits[len(prompt) - 1 : -1]
        total = total + torch.nn.functional.cross_entropy(predicted, target, reduction="sum")
        count += len(target)
    (total / count).backward()
    return float(total.detach()) / count, gradients_of(loaded.model)


@pytest.mark.parametrize(
    "arrangement", [{}, {"trainer": {"gradient_accumulation": 2}}, {"checkpointing": True}], ids=str
)
def test_the_loss_is_the_cross_entropy_of_the_targets(checkpoints, rows, arrangement):
    loss, gradients = hand_made(checkpoints["qwen2_5_vl"], rows)
    _, metrics, (found,) = train(checkpoints["qwen2_5_vl"], rows, **arrangement)
    assert metrics[0]["loss"] == pytest.approx(loss, rel=1e-4)
    assert_same_gradients(found, gradients)


def test_training_lowers_the_loss_and_a_seed_decides_it(checkpoints, rows):
    settings = {"max_steps": 8, "batch_size": 2}
    first = train(checkpoints["qwen2_5_vl"], rows, trainer=settings)[1]
    again = train(checkpoints["qwen2_5_vl"], rows, trainer=settings)[1]
    assert first[7]["loss"] < 0.8 * first[0]["loss"]
    assert without_times(first) == without_times(again)
    other = train(checkpoints["qwen2_5_vl"], rows, trainer={**settings, "max_steps": 1}, seed=1)[1]
    assert other[0]["loss"] != first[0]["loss"], "another seed is another order of rows"


def test_adapters_alone_learn(checkpoints, rows):
    _, metrics, steps = train(
        checkpoints["qwen2_5_vl"],
        rows,
        peft_config=lora_config(rank=4),
        trainer={"max_steps": 4, "learning_rate": 2e-2},
    )
    assert steps[0] and all("lora" in name and "visual" not in name for name in steps[0])
    assert metrics[3]["loss"] < metrics[0]["loss"]


def test_a_row_without_a_rationale_is_refused_by_its_id(checkpoints, rows):
    root, known = rows
    with pytest.raises(ValueError, match="1 of 4 rows.*'row-2'"):
        train(checkpoints["qwen2_5_vl"], (root, [*known[:2], replace(known[2], rationale=None), known[3]]))


def test_an_unreadable_row_is_skipped(checkpoints, tmp_path):
    known = make_rows(tmp_path)
    (tmp_path / "0.mp4").unlink()
    trainer, _, _ = train(
        checkpoints["qwen2_5_vl"], (tmp_path, known), trainer={"max_steps": 4, "batch_size": 1},
        readable=lambda encoder: ReadableRows(known, encoder.load_frames),
    )  # fmt: skip
    assert trainer.readable.num_skipped == 1 and trainer.state.global_step == 4
