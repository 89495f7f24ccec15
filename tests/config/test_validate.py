"""What cannot work is refused, by its full key, before anything is built."""

from __future__ import annotations

import copy
from functools import cache

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from ktr.config.compose import SCHEMAS, compose
from ktr.config.fields import ConfigError
from ktr.config.schemas import EvaluateConfig, PredictConfig, TrainConfig
from ktr.config.validate import check_files, validate


@cache
def composed(entry: str, *choices: str) -> DictConfig:
    return compose(entry, choices)


def config_of(*overrides: str, entry: str = "train") -> DictConfig:
    """A config with `overrides`, as Hydra sets them; choices of groups are composed once for all tests."""
    config = copy.deepcopy(composed(entry, *(item for item in overrides if "." not in item.partition("=")[0])))
    for override in OverridesParser.create().parse_overrides([item for item in overrides if "." in item.split("=")[0]]):
        OmegaConf.update(config, override.key_or_group, override.value(), force_add=override.is_add())
    return config


def refused(*overrides: str, entry: str = "train") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        validate(config_of(*overrides, entry=entry), SCHEMAS[entry])
    return caught.value


def test_a_limit_is_shown_with_all_its_digits() -> None:
    assert str(refused("seed=99999999999999999999")).startswith("seed: must be at most 4294967295, not 999999")
    assert str(refused("ktr.top_k=1.5")) == "ktr.top_k: must be at most 1, not 1.5"


@pytest.mark.parametrize(
    ("override", "key", "hint"),
    [
        ("+ktr.topk=0.2", "ktr.topk", "ktr.top_k"),
        ("+top_k=0.2", "top_k", "ktr.top_k"),
        ("+trainer.group_sise=4", "trainer.group_sise", "trainer.group_size"),
        ("+data.sampling.frames=4", "data.sampling.frames", "data.sampling.nframes"),
        ("+sft.lora.rank=4", "sft.lora", "model.lora"),
        ("+whatever=1", "whatever", "the top level has name, seed"),
    ],
)
def test_unknown_keys_added_with_plus_are_named_with_the_nearest_known_one(override: str, key: str, hint: str) -> None:
    error = refused(override)
    assert error.key == key
    assert "unknown key" in str(error) and hint in str(error)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("ktr.top_k=0", "ktr.top_k"),
        ("ktr.top_k=1.01", "ktr.top_k"),
        ("ktr.top_k=nan", "ktr.top_k"),
        ("ktr.visual.top_k=-0.1", "ktr.visual.top_k"),
        ("ktr.delta=relative", "ktr.delta"),
        ("ktr.visual.blind=black", "ktr.visual.blind"),
        ("ktr.temporal.permutations=0", "ktr.temporal.permutations"),
        ("trainer.group_size=1", "trainer.group_size"),
        ("trainer.learning_rate=-1e-6", "trainer.learning_rate"),
        ("trainer.learning_rate=inf", "trainer.learning_rate"),
        ("trainer.objective=ppo", "trainer.objective"),
        ("sft.max_steps=0", "sft.max_steps"),
        ("rollout.top_p=0", "rollout.top_p"),
        ("model.lora.dropout=1", "model.lora.dropout"),
        ("data.decoder=ffmpeg", "data.decoder"),
        ("data.format=csv", "data.format"),
        ("logger.mode=disabled", "logger.mode"),
        ("seed=-1", "seed"),
        ("name='a=b'", "name"),
        ("name=''", "name"),
        ("name=../x", "name"),
        ("stages=[]", "stages"),
        ("stages=[rl,sft]", "stages"),
        ("stages=[sft,sft]", "stages"),
        ("stages=[train]", "stages"),
        ("eval.splits=[held]", "eval.splits"),
        ("plugins=['os.system()']", "plugins"),
    ],
)
def test_values_out_of_range_name_their_key(override: str, key: str) -> None:
    assert refused(override).key == key


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (
            ["data.sampling.fps=1", "data.sampling.nframes=4"],
            ["data.sampling.fps", "add data.sampling.fps=null", "data.sampling.nframes=null"],
        ),
        (["data.sampling.nframes=null"], ["data.sampling.fps", "nframes"]),
        (["data.sampling.nframes=1"], ["data.sampling.nframes"]),
        (["data.sampling.nframes=0"], ["data.sampling.nframes"]),
        (["data.sampling.nframes=5"], ["data.sampling.nframes", "even"]),
        (["data.sampling.min_frames=20", "data.sampling.max_frames=8"], ["data.sampling.min_frames", "max_frames"]),
        (["data.sampling.min_pixels=9999"], ["data.sampling.min_pixels", "max_pixels"]),
        (["data.sampling.total_pixels=5"], ["data.sampling.total_pixels", "min_pixels"]),
        (["trainer.gradient_accumulation=3"], ["trainer.gradient_accumulation", "groups_per_step"]),
        (["sft.gradient_accumulation=3"], ["sft.gradient_accumulation", "batch_size"]),
        (["trainer.warmup_steps=100000"], ["trainer.warmup_steps", "max_steps"]),
        (["trainer.epsilon=0.3", "trainer.epsilon_high=0.2"], ["trainer.epsilon_high", "epsilon=0.3"]),
        (["trainer.max_packed_tokens=100"], ["trainer.max_packed_tokens", "data.max_prompt_tokens"]),
        (["output_dir="], ["output_dir", "is empty"]),
        (["model.attn_implementation=flash_attention_2"], ["model.attn_implementation", "trainer.packing=false"]),
        (["rollout.temperature=0"], ["rollout.temperature"]),
        (["rollout.max_new_tokens=9000"], ["rollout.max_new_tokens", "model.toy.max_length"]),
        (["eval.max_new_tokens=9000"], ["eval.max_new_tokens", "model.toy.max_length"]),
        (["model.toy.hidden_size=100"], ["model.toy.hidden_size", "head_dim"]),
        (["model.toy.num_kv_heads=3"], ["model.toy.num_kv_heads"]),
        (["model.lora.rank=4", "model.lora.target_modules=[]"], ["model.lora.target_modules"]),
        (["model.dtype=float16"], ["model.dtype", "bfloat16"]),
        (["stages=[sft]", "model.dtype=float16"], ["model.dtype"]),
        (["model.lora.target_modules=[q_proj,qkv]"], ["model.lora.target_modules", "not qkv"]),
        (["model=qwen2_5_vl_7b", "model.path=null"], ["model.path"]),
        (["model=checkpoint"], ["model.path", "required"]),
        (["data=video_r1"], ["data.path", "required"]),
        (["data=video_r1", "data.path=null"], ["data.path", "required"]),
    ],
)
def test_settings_that_exclude_each_other_name_both(overrides: list[str], keys: list[str]) -> None:
    error = refused(*overrides)
    assert error.key == keys[0]
    for key in keys[1:]:
        assert key in str(error)


@pytest.mark.parametrize("stages", ["[sft]", "[eval]", "[sft,eval]"])
def test_what_only_rl_needs_is_not_asked_of_other_stages(stages: str) -> None:
    assert validate(config_of(f"stages={stages}", "rollout.temperature=0")).rollout.temperature == 0


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"ktr": {"top_k": "0.2"}}, "ktr.top_k"),
        ({"ktr": {"top_k": True}}, "ktr.top_k"),
        ({"ktr": {"mask_kl": 1}}, "ktr.mask_kl"),
        ({"ktr": 0.2}, "ktr"),
        ({"seed": 1.5}, "seed"),
        ({"seed": None}, "seed"),
        ({"stages": "sft"}, "stages"),
        ({"stages": ["sft", 3]}, "stages[1]"),
        ({"name": 3}, "name"),
        ({"reward": {"components": ["accuracy"]}}, "reward.components"),
        ({"trainer": {"max_steps": 1.0}}, "trainer.max_steps"),
    ],
)
def test_plain_values_of_the_wrong_type_name_their_key(values: dict, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(values)
    assert caught.value.key == key


def test_whole_numbers_are_numbers() -> None:
    config = validate({"ktr": {"top_k": 1}, "stages": ["sft"]})
    assert config.ktr.top_k == 1.0 and isinstance(config.ktr.top_k, float)


class TestRewards:
    def test_a_misspelt_argument_is_named_with_those_the_component_takes(self) -> None:
        error = refused("+reward.components.accuracy.polcy=default")
        assert error.key == "reward.components.accuracy.polcy" and "policy" in error.message

    def test_a_component_that_does_not_exist(self) -> None:
        error = refused("reward.components.accuracy._target_=ktr.rewards.components.AcuracyReward")
        assert error.key == "reward.components.accuracy._target_" and "does not exist" in error.message

    @pytest.mark.parametrize(
        "target", ["os.system", "torch.load", "transformers.AutoModel", "ktr.rewards.components.inspect.signature"]
    )
    def test_a_component_from_elsewhere(self, target: str) -> None:
        assert refused(f"reward.components.accuracy._target_={target}").key == "reward.components.accuracy._target_"

    def test_a_nested_target_from_elsewhere(self) -> None:
        error = refused("+reward.components.accuracy.policy={_target_:os.system,command:ls}")
        assert error.key == "reward.components.accuracy.policy._target_"

    @pytest.fixture
    def my_package(self, tmp_path, monkeypatch):
        (tmp_path / "my_package.py").write_text("raise AssertionError('imported')")
        monkeypatch.syspath_prepend(tmp_path)

    @pytest.mark.usefixtures("my_package")
    def test_a_component_of_a_plugin_is_accepted_without_importing_it(self) -> None:
        extra = "+reward.components.mine={_target_:my_package.rewards.Mine,weight:2.0,x:1}"
        config = validate(config_of(extra, "plugins=[my_package]"))
        assert config.reward.weights["mine"] == 2.0
        assert config.reward.nodes["mine"] == {"_target_": "my_package.rewards.Mine", "x": 1}

    @pytest.mark.parametrize("plugin", ["nope", "nope.rewards", "my_package.nope", "json.nope"])
    @pytest.mark.usefixtures("my_package")
    def test_a_plugin_that_cannot_be_imported(self, plugin: str) -> None:
        error = refused(f"+reward.components.mine={{_target_:{plugin}.Mine}}", f"plugins=[{plugin}]")
        assert error.key == "plugins" and plugin in error.message

    @pytest.mark.usefixtures("my_package")
    def test_a_function_of_another_module_is_held_to_the_same_rules(self) -> None:
        node = "+reward.components.mine={_target_:ktr.rewards.signatures.FunctionReward,function:'%s'}"
        assert refused(node % "os:system").key == "reward.components.mine.function._target_"
        config = validate(config_of(node % "my_package.rewards:mine", "plugins=[my_package]"))
        assert config.reward.nodes["mine"]["function"] == "my_package.rewards:mine"

    @pytest.mark.parametrize("reward", ["t_grpo", "video_r1"])
    def test_t_grpos_keys(self, reward: str) -> None:
        def temporal(*overrides: str) -> dict:
            return validate(config_of(f"reward={reward}", *overrides)).reward.components["temporal"]

        assert [temporal()[key] for key in ("alpha", "mu", "threshold")] == [0.3, 0.8, 0.1]
        changed = temporal(
            "reward.temporal.alpha=0.5", "reward.temporal.mu=1.0", "reward.components.temporal.threshold=0.2"
        )
        assert [changed[key] for key in ("alpha", "mu", "threshold")] == [0.5, 1.0, 0.2]

    def test_t_grpos_keys_without_its_component(self) -> None:
        assert refused("reward.temporal.alpha=0.5").key == "reward.temporal"
        assert refused("reward=t_grpo", "reward.temporal.mu=-1").key == "reward.temporal.mu"

    def test_rl_needs_a_reward(self) -> None:
        config = config_of()
        config.reward.components = {}
        with pytest.raises(ConfigError, match="reward.components: is empty"):
            validate(config)

    def test_a_component_without_a_target_or_with_an_odd_weight(self) -> None:
        assert refused("+reward.components.x.weight=1").key == "reward.components.x"
        assert refused("++reward.components.format.weight=much").key == "reward.components.format.weight"
        zero = ["reward.components.format.weight=0", "reward.components.accuracy.weight=0"]
        assert refused(*zero).key == "reward.components"


class TestPredict:
    GIVEN = ("model.path=/checkpoint", "question=why")

    def test_question_is_required(self) -> None:
        assert refused("model.path=/c", entry="predict").key == "question"
        assert refused("model.path=/c", "question='  '", entry="predict").key == "question"

    @pytest.mark.parametrize(
        ("overrides", "key"),
        [
            (["video=/a.mp4", "image=/a.png"], "video"),
            (["start=1"], "start"),
            (["end=1"], "end"),
            (["video=/a.mp4", "start=3", "end=2"], "start"),
        ],
    )
    def test_settings_that_exclude_each_other(self, overrides: list[str], key: str) -> None:
        assert refused(*self.GIVEN, *overrides, entry="predict").key == key

    def test_is_typed(self) -> None:
        config = validate(compose("predict", [*self.GIVEN, "video=/a.mp4", "tokens=true"]), PredictConfig)
        assert isinstance(config, PredictConfig) and config.tokens and config.video == "/a.mp4"


def test_evaluate_is_typed_and_has_no_trainer() -> None:
    assert isinstance(validate(compose("evaluate", ["model.path=/c"]), EvaluateConfig), EvaluateConfig)
    error = refused("model.path=/c", "+trainer.max_steps=1", entry="evaluate")
    assert error.key == "trainer"


def test_files_that_are_not_there_are_named(tmp_path) -> None:
    there = tmp_path / "rows.json"
    there.write_text("[]")
    for key, path in [("data.path", "/no/rows.json"), ("data.media_root", "/no/videos"), ("model.path", "/no/model")]:
        given = {"data.path": str(there), "data.media_root": str(tmp_path), "model.path": str(tmp_path)} | {key: path}
        config = validate(compose("train", ["data=jsonl", *(f"{name}={value}" for name, value in given.items())]))
        with pytest.raises(ConfigError) as caught:
            check_files(config)
        assert caught.value.key == key and path in str(caught.value)


def test_a_hub_name_is_no_file() -> None:
    config = validate(compose("train", ["model=qwen2_5_vl_7b"]))
    assert config.model.path == "Qwen/Qwen2.5-VL-7B-Instruct"
    check_files(config)


def test_schemas_give_the_same_errors_when_used_from_python() -> None:
    with pytest.raises(ValueError, match="name: names a folder"):
        TrainConfig(name="a/b")


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        (["metric=acuracy"], "such as accuracy"),
        (["metric=dpo/loss"], "such as accuracy"),
        (["metric=rl/reward", "stages=[sft,eval]"], "stages=['sft', 'eval']"),
        (["metric=accuracy.rl", "stages=[rl]"], "needs the stage eval"),
    ],
)
def test_a_metric_that_the_stages_do_not_measure_is_refused(overrides: list[str], hint: str) -> None:
    error = refused(*overrides)
    assert error.key == "metric" and hint in str(error)


def test_a_metric_of_another_benchmark_is_refused() -> None:
    given = ["eval=mmvu", "eval.engine=replay", "eval.replies=replies.jsonl", "eval.root=rows"]
    error = refused(*given, "metric=videomme.accuracy", entry="evaluate")
    assert error.key == "metric" and "mmvu.accuracy" in str(error)
    for metric in ("mmvu.accuracy", "accuracy"):
        validate(config_of(*given, f"metric={metric}", entry="evaluate"), EvaluateConfig)
    for metric in ("accuracy", "by_kind.order.rl", "rl/key_tokens/kept/key", "seconds"):
        validate(config_of(f"metric={metric}"))


def test_a_question_about_one_clip_needs_no_rows():
    given = ["data=video_r1", "question=what", "video=clip.mp4", "model.path=/models/mine"]
    assert validate(compose("predict", given), PredictConfig).data.name == "video_r1"
    with pytest.raises(ConfigError, match=r"^data\.path: is required with data=video_r1"):
        validate(compose("train", ["data=video_r1"]), TrainConfig)
