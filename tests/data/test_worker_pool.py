"""Workers that loop, crash, flood or fail are ended from outside; every other task keeps its result."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time

import pytest

from ktr.data.worker_pool import CRASHED, TIMEOUT, HardLimitPool


def make_worker(scale=1):
    def work(task):
        if task == "loop":  # A regular expression that backtracks for ever inside C, holding the interpreter lock.
            re.match(r"(a+)+$", "a" * 64 + "b")
        if task == "crash":
            os.write(2, b"boom\n" * 3)
            ctypes.string_at(0)
        if task == "abort":
            os.abort()
        if task == "raise":
            raise KeyError("odd")
        if task == "exit":
            os._exit(3)
        if task == "memory":
            bytearray(1 << 34)
        return scale * task

    return work


def outcomes(tasks, **settings):
    pool = HardLimitPool(make_worker, (10,), **({"workers": 2, "limit_s": 1.0} | settings))
    return {outcome.task: outcome for outcome in pool.run(tasks)}


def test_results_come_back_for_every_task():
    found = outcomes(range(20))
    assert {task: outcome.result for task, outcome in found.items()} == {task: 10 * task for task in range(20)}


def test_a_loop_that_holds_the_interpreter_lock_is_ended():
    begin = time.monotonic()
    found = outcomes([1, "loop", 2, 3, 4])
    assert found["loop"].failure == TIMEOUT and "1 s" in found["loop"].detail
    assert [found[task].result for task in (1, 2, 3, 4)] == [10, 20, 30, 40]
    assert time.monotonic() - begin < 20


def test_a_dead_worker_costs_its_task_alone():
    found = outcomes([1, "crash", 2, "abort", 3, "raise", 4, "exit", 5], limit_s=20)
    crashed = {task for task, outcome in found.items() if outcome.failure == CRASHED}
    assert crashed == {"crash", "abort", "raise", "exit"}
    assert [found[task].result for task in range(1, 6)] == [10, 20, 30, 40, 50]
    assert "SIGSEGV: boom" in found["crash"].detail
    assert "SIGABRT" in found["abort"].detail
    assert "KeyError: 'odd'" in found["raise"].detail
    assert "status 3" in found["exit"].detail


@pytest.mark.skipif(sys.platform != "linux", reason="the bound on memory needs /proc")
def test_a_task_that_wants_too_much_memory_is_a_failed_task():
    found = outcomes(["memory", 1], memory_bytes=1 << 30, limit_s=20)
    assert found["memory"].failure == CRASHED and "MemoryError" in found["memory"].detail
    assert found[1].result == 10


def test_processes_end_with_the_iteration():
    pool = HardLimitPool(make_pid_worker, workers=2, limit_s=60)
    runs = pool.run(range(100))
    pids = {next(runs).result for _ in range(10)}
    runs.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def make_pid_worker():
    return lambda task: os.getpid()


def make_broken_worker():
    raise ImportError("no decoder at all")


def test_a_worker_that_cannot_start_is_no_fault_of_a_task():
    with pytest.raises(RuntimeError, match="could not start.*no decoder at all"):
        list(HardLimitPool(make_broken_worker, workers=1, limit_s=5).run([1]))


def make_orphan_worker():
    signal.setitimer(signal.ITIMER_REAL, 0)
    return lambda task: signal.getitimer(signal.ITIMER_REAL)[0]


def test_a_worker_whose_parent_is_gone_ends_by_its_own_alarm():
    (outcome,) = HardLimitPool(make_orphan_worker, workers=1, limit_s=5).run([1])
    assert 10 < outcome.result <= 15


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="workers=0"):
        HardLimitPool(make_worker, workers=0, limit_s=1)
