"""Objects come only from the allow-list, whatever a dotted name looks like."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any

import pytest
from omegaconf import OmegaConf

from ktr.config.fields import ConfigError
from ktr.config.instantiate import build, check_name, resolve


@dataclass
class Keeps:
    """Keeps what it was given, so that a test can look at the types."""

    value: Any = None
    more: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module `my_plugin` with a class of its own and things it merely imported."""
    module = types.ModuleType("my_plugin")
    module.Keeps = type("Keeps", (Keeps,), {"__module__": "my_plugin", "__qualname__": "Keeps"})
    module.os = __import__("os")
    module.system = module.os.system
    module.loads = __import__("pickle").loads
    module.instance = module.Keeps()
    monkeypatch.setitem(sys.modules, "my_plugin", module)
    return "my_plugin"


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "posix.system",
        "subprocess.Popen",
        "builtins.eval",
        "torch.load",
        "torch.hub.load",
        "torch.optimizer.X",
        "torchvision.io.read_video",
        "transformers.AutoModel.from_pretrained",
        "trl.GRPOTrainer",
        "ktrx.Evil",
        "my_plugin.Keeps",
        "ktr.config.instantiate.__builtins__.eval",
        "ktr",
        "os",
        "",
        "ktr..os",
        "ktr.config;os.system",
    ],
)
def test_names_from_elsewhere_are_refused_before_any_import(name: str) -> None:
    modules = set(sys.modules)
    with pytest.raises(ConfigError) as caught:
        check_name(name)
    assert caught.value.key == "_target_"
    with pytest.raises(ConfigError):
        build({"_target_": name})
    assert set(sys.modules) == modules


@pytest.mark.parametrize(
    "name",
    [
        "ktr.config.cli.os.system",
        "ktr.config.cli.sys.exit",
        "ktr.config.instantiate.importlib.import_module",
        "ktr.config.help.textwrap.wrap",
        "ktr.config.cli.traceback.print_exc",
        "ktr.config.cli.Path",
        "ktr.config.cli.hydra.utils.get_class",
        "ktr.config.fields.ConfigError.with_traceback",
        "ktr.config.instantiate.ALLOWED_OBJECTS",
        "ktr.config.instantiate",
    ],
)
def test_what_one_of_our_modules_imported_is_not_ours(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(name)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["my_plugin.system", "my_plugin.os.system", "my_plugin.loads", "my_plugin.instance"])
def test_a_plugin_lends_only_what_it_defines(name: str) -> None:
    with pytest.raises(ConfigError):
        resolve(name, plugins=["my_plugin"])


def test_a_plugin_is_used_when_it_is_named(plugin: str) -> None:
    assert build({"_target_": "my_plugin.Keeps", "value": 3}, plugins=[plugin]).value == 3


def test_nested_targets_are_tested_and_built(plugin: str) -> None:
    inner = {"_target_": "my_plugin.Keeps", "value": 1}
    built = build({"_target_": "my_plugin.Keeps", "value": [inner], "more": {"deep": inner}}, plugins=[plugin])
    assert built.value[0].value == 1 and built.more["deep"].value == 1
    evil = {"_target_": "os.system", "command": "true"}
    for value in (evil, [[evil]], {"x": {"y": evil}}, OmegaConf.create([evil])):
        with pytest.raises(ConfigError):
            build({"_target_": "my_plugin.Keeps", "value": value}, plugins=[plugin])


def test_arguments_arrive_as_plain_types(plugin: str) -> None:
    node = OmegaConf.create({"_target_": "my_plugin.Keeps", "value": ["a", "b"], "more": {"n": 1, "ref": "${value}"}})
    built = build(node, plugins=[plugin])
    assert type(built.value) is list and type(built.more) is dict and type(built.more["ref"]) is list
    handed = build({"_target_": "my_plugin.Keeps", "value": OmegaConf.create([1])}, plugins=[plugin])
    assert type(handed.value) is list


def test_objects_given_beside_the_node_win(plugin: str) -> None:
    assert build({"_target_": "my_plugin.Keeps", "value": 1}, plugins=[plugin], value=2).value == 2


@pytest.mark.parametrize("key", ["_partial_", "_args_", "_convert_", 3])
def test_special_keys_are_refused(key: Any, plugin: str) -> None:
    with pytest.raises(ConfigError):
        build({"_target_": "my_plugin.Keeps", key: True}, plugins=[plugin])


def test_a_node_without_a_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="_target_"):
        build({"value": 1})


def test_a_name_that_does_not_exist_says_so() -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        resolve("ktr.config.fields.Nothing")
    with pytest.raises(ConfigError, match="does not exist"):
        resolve("ktr.nothing.here.Nothing")


def test_an_import_error_within_an_allowed_module_is_not_hidden(monkeypatch, tmp_path) -> None:
    (tmp_path / "broken_plugin.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        resolve("broken_plugin.Thing", plugins=["broken_plugin"])


def test_parts_of_torch_and_trl_are_allowed_by_name() -> None:
    import torch
    from trl.rewards import think_format_reward

    weight = torch.nn.Parameter(torch.zeros(1))
    assert isinstance(build({"_target_": "torch.optim.AdamW", "lr": 1e-3}, params=[weight]), torch.optim.AdamW)
    assert isinstance(build({"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1}), torch.nn.Linear)
    assert resolve("trl.rewards.think_format_reward") is think_format_reward
    with pytest.raises(ConfigError):
        resolve("torch.nn.functional.torch.load")
