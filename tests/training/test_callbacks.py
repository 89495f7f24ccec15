from __future__ import annotations

from types import SimpleNamespace

import pytest

from ktr.training.callbacks import MetricsFile, ProgressBar, StopOnBrokenLoss
from ktr.training.run_folder import RunFolder


def state(step: int = 3, main: bool = True):
    return SimpleNamespace(global_step=step, max_steps=10, is_world_process_zero=main)


def test_every_log_of_the_main_process_is_a_line(tmp_path):
    folder = RunFolder(tmp_path)
    callback = MetricsFile(folder, "sft")
    callback.on_log(None, state(1), None, logs={"loss": 0.5})
    callback.on_log(None, state(2), None, logs={"loss": float("nan"), "reward": None})
    callback.on_log(None, state(2), None, logs={})
    callback.on_log(None, state(2, main=False), None, logs={"loss": 9.0})
    assert folder.read_metrics() == [
        {"stage": "sft", "step": 1, "loss": 0.5},
        {"stage": "sft", "step": 2, "loss": None, "reward": None},
    ]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_broken_loss_ends_the_run(loss):
    callback = StopOnBrokenLoss()
    callback.on_log(None, state(), None, logs={"loss": 1.0})
    callback.on_log(None, state(), None, logs={"reward": loss})
    with pytest.raises(ValueError, match="step 3.*learning rate"):
        callback.on_log(None, state(), None, logs={"loss": loss})


def test_the_bar_shows_what_a_person_watches(capsys):
    bar = ProgressBar("rl")
    bar.on_train_begin(None, state(0), None)
    bar.on_log(None, state(1), None, logs={"reward": 0.25, "key_tokens/kept/union": 0.4, "grad_norm": 7.0})
    bar.on_step_end(None, state(4), None)
    bar.on_train_end(None, state(10), None)
    shown = capsys.readouterr().err
    assert "rl" in shown and "4/10" in shown and "reward=0.250" in shown and "kept=0.400" in shown
    assert "grad_norm" not in shown


def test_other_ranks_show_nothing(capsys):
    bar = ProgressBar("rl")
    bar.on_train_begin(None, state(0, main=False), None)
    bar.on_step_end(None, state(1, main=False), None)
    bar.on_log(None, state(1, main=False), None, logs={"reward": 1.0})
    bar.on_train_end(None, state(1, main=False), None)
    assert capsys.readouterr().err == ""
