from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from ktr.models.toy_model import FAMILIES, ToySize, build_toy_checkpoint

SMALL = ToySize(hidden_size=64, intermediate_size=96, num_layers=2, num_kv_heads=1, vision_depth=2)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_loads_and_runs_as_a_released_one(tmp_path, family):
    patch_size = 16 if family == "qwen3_vl" else 14
    path = build_toy_checkpoint(tmp_path, family=family, size=SMALL, patch_size=patch_size)
    model = AutoModelForImageTextToText.from_pretrained(path)
    processor = AutoProcessor.from_pretrained(path)
    assert model.config.model_type == family and type(model).__name__.endswith("ForConditionalGeneration")
    assert processor.video_processor.patch_size == processor.image_processor.patch_size == patch_size

    side = 2 * 2 * patch_size
    video = torch.randint(0, 256, (8, 3, side, side), dtype=torch.uint8)
    user = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "what color is it?"}]}
    text = processor.apply_chat_template([user], add_generation_prompt=True, tokenize=False)
    metadata = {"fps": 4.0, "total_num_frames": 8, "frames_indices": list(range(8))}
    inputs = processor(text=[text], videos=[video], video_metadata=[metadata], return_tensors="pt")
    assert inputs["video_grid_thw"].tolist() == [[4, 4, 4]]
    assert (inputs["input_ids"] == model.config.video_token_id).sum() == 4 * 4
    with torch.no_grad():
        logits = model(**inputs).logits
    assert logits.shape[-1] >= len(processor.tokenizer) and logits.isfinite().all()
    assert model.generation_config.eos_token_id[0] == processor.tokenizer.eos_token_id


@pytest.mark.parametrize("family", FAMILIES)
def test_frames_under_the_cap_keep_their_size(tmp_path, family):
    path = build_toy_checkpoint(tmp_path, family=family, size=SMALL, max_pixels=4 * 28 * 28)
    video_processor = AutoProcessor.from_pretrained(path).video_processor
    for height, width in ((56, 56), (28, 84), (28, 28)):
        frames = torch.zeros((2, 3, height, width), dtype=torch.uint8)
        grid = video_processor([frames], return_tensors="pt", do_sample_frames=False)["video_grid_thw"]
        assert grid.tolist() == [[1, height // 14, width // 14]]


def test_the_default_model_has_one_to_four_million_parameters_and_head_dimension_32(tmp_path):
    model = AutoModelForImageTextToText.from_pretrained(build_toy_checkpoint(tmp_path))
    text = model.config.text_config
    assert 1e6 <= sum(p.numel() for p in model.parameters()) <= 4e6
    assert text.hidden_size // text.num_attention_heads == 32
    assert sum(text.rope_parameters["mrope_section"]) == 16


def test_weights_follow_the_seed_and_leave_the_callers_random_state(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    paths = [build_toy_checkpoint(tmp_path / str(i), seed=seed, size=SMALL) for i, seed in enumerate((1, 1, 2))]
    assert torch.equal(torch.rand(3), expected)
    first, same, other = ((path / "model.safetensors").read_bytes() for path in paths)
    assert first == same != other


def test_a_word_starts_out_alike_with_and_without_a_space(tmp_path):
    path = build_toy_checkpoint(tmp_path, size=SMALL)
    tokenizer = AutoProcessor.from_pretrained(path).tokenizer
    weights = AutoModelForImageTextToText.from_pretrained(path).get_input_embeddings().weight.detach()
    rows = {text: weights[tokenizer(text)["input_ids"][0]] for text in ("red", " red", " blue")}
    assert torch.cosine_similarity(rows["red"], rows[" red"], dim=0) > 0.7
    assert torch.cosine_similarity(rows["red"], rows[" blue"], dim=0).abs() < 0.5
    assert 0.5 < rows[" red"].norm() / rows["red"].norm() < 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"hidden_size": 100}, "hidden_size=100"), ({"num_kv_heads": 3}, "num_kv_heads=3")],
)
def test_widths_that_do_not_divide_into_heads_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ToySize(**settings)


def test_an_unknown_family_is_refused(tmp_path):
    with pytest.raises(ValueError, match="qwen2_5_vl"):
        build_toy_checkpoint(tmp_path / "new", family="llava")
    assert not (tmp_path / "new").exists()
