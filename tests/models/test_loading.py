from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from transformers import LlamaConfig

from ktr import components
from ktr.config.schema_inputs import LoraConfig, ModelConfig
from ktr.models.loading import LoadedModel, load_model, vision_is_frozen
from ktr.models.lora import lora_config


def test_every_family_loads_the_same_way(loaded: LoadedModel) -> None:
    assert loaded.model.config.model_type == loaded.family.name
    assert not loaded.model.training
    assert loaded.model.config._attn_implementation == "sdpa"
    assert next(loaded.model.parameters()).dtype == torch.float32


@pytest.mark.parametrize("frozen", [True, False])
def test_freezing_covers_the_vision_tower_and_nothing_else(checkpoints: dict[str, Path], frozen: bool) -> None:
    model = load_model(checkpoints["qwen2_5_vl"], freeze_vision=frozen, dtype="bfloat16").model
    assert vision_is_frozen(model) == frozen
    assert all(p.requires_grad for name, p in model.named_parameters() if ".visual." not in name)
    assert model.dtype == torch.bfloat16


def test_missing_checkpoints_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no checkpoint at .*nowhere"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="without a config.json"):
        load_model(tmp_path)
    file = tmp_path / "model.bin"
    file.touch()
    with pytest.raises(ValueError, match="is a file"):
        load_model(file)


def test_incomplete_checkpoints_are_named(tmp_path: Path, loaded_models: dict[str, LoadedModel]) -> None:
    loaded_models["qwen2_vl"].model.config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path.name}' is incomplete"):
        load_model(tmp_path)


def test_broken_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{ not json")
    with pytest.raises(ValueError, match="no readable config"):
        load_model(tmp_path)


def test_other_families_and_dtypes_are_refused(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    LlamaConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'llama' is not supported"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="float64"):
        load_model(checkpoints["qwen2_vl"], dtype="float64")


def test_lora_covers_the_language_model_only(checkpoints: dict[str, Path]) -> None:
    for path in checkpoints.values():
        # as a run with model.lora.rank=2 builds them
        model = get_peft_model(load_model(path).model, components.adapters(ModelConfig(lora=LoraConfig(rank=2))))
        trained = [name for name, p in model.named_parameters() if p.requires_grad]
        assert len(trained) == 2 * 7 * 3
        assert all("language_model" in name and "lora_" in name for name in trained)
        assert vision_is_frozen(model)
    with pytest.raises(ValueError, match="rank"):
        lora_config(rank=0)
    with pytest.raises(ValueError, match="got proj$"):
        lora_config(target_modules=["q_proj", "proj"])
