"""A run that is told to end does so at a safe point, with a status that says so."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from ktr.training.stopping import SIGNALS, Interrupted, SafePoints, StopRequest, stop_requests


def control(due=False):
    return SimpleNamespace(should_save=due, should_training_stop=False)


def step(callback, number, due=False, updates=1):
    args, asked = SimpleNamespace(num_iterations=updates), control(due)
    callback.on_step_end(args, SimpleNamespace(global_step=number), asked)
    return asked.should_save, asked.should_training_stop


def test_checkpoints_that_are_due_are_written_at_once_where_nothing_waits(tmp_path):
    callback = SafePoints(StopRequest(tmp_path))
    assert step(callback, 1) == (False, False) and step(callback, 2, due=True) == (True, False)
    callback.on_step_end(SimpleNamespace(), SimpleNamespace(global_step=3), asked := control(True))
    assert asked.should_save


def test_checkpoints_wait_until_all_updates_of_a_batch_are_done(tmp_path):
    callback = SafePoints(StopRequest(tmp_path))
    found = [step(callback, number, due=number == 4, updates=3) for number in range(1, 8)]
    assert [save for save, _ in found] == [False, False, False, False, False, True, False]


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_within_steps_ends_at_the_next_safe_point(tmp_path, signum):
    before = signal.getsignal(signum)
    with stop_requests(tmp_path) as request:
        callback = SafePoints(request)
        callback.on_train_begin(None, None, None)
        assert step(callback, 4, updates=2) == (False, False)
        os.kill(os.getpid(), signum)
        assert step(callback, 5, updates=2) == (False, False)
        assert step(callback, 6, updates=2) == (True, True)
        assert request.agreed == signum
        ended = request.interrupt(signum, "with checkpoint-6")
    assert ended.code == 128 + signum and f"resume={tmp_path}" in ended.message
    assert signal.getsignal(signum) == before


def test_a_signal_between_the_stages_ends_at_once(tmp_path):
    with stop_requests(tmp_path) as request, pytest.raises(Interrupted):
        SafePoints(request).on_train_begin(None, None, None)
        SafePoints(request).on_train_end(None, None, None)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_process_forked_for_data_ends_as_it_always_did(tmp_path):
    with stop_requests(tmp_path) as request:
        request.in_steps = True
        child = os.fork()
        if child == 0:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM and request.signum == 0
