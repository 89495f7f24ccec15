"""What a job writes about itself is read back in order, whatever rank wrote it, and a torn line is no line."""

from __future__ import annotations

from launchers.job_events import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    REQUEUED,
    STARTED,
    Event,
    is_finished,
    of_attempt,
    read,
    record,
    requeues,
)


def test_events_of_all_ranks_come_in_the_order_of_their_times(tmp_path):
    assert read(tmp_path) == []
    told = [
        Event(STARTED, "7_0.0", 1, time=1.0), Event(STARTED, "7_0.0", 0, time=2.0),
        Event(REQUEUED, "7_0.0", 0, "pre-empted", 3.0), Event(STARTED, "7_0.1", 0, time=4.0),
        Event(FAILED, "7_0.1", 1, "größer als \"1\"\n?", 5.0),
    ]  # fmt: skip
    for event in (told[1], told[2], told[0], told[3], told[4]):
        record(tmp_path, event)
    with (tmp_path / "launch" / "task_0.jsonl").open("a") as file:
        file.write('{"event": "fini')
    found = read(tmp_path)
    assert found == told and not is_finished(found)
    assert of_attempt(found, "7_0.0", STARTED) == told[:2] and of_attempt(found, "7_0.0", FAILED) == []
    assert (requeues(found, "pre-empted"), requeues(found, "timed out")) == (1, 0)
    record(tmp_path, Event(FINISHED, "7_0.1", 0))
    assert is_finished(read(tmp_path))


def test_a_worker_and_the_task_of_the_same_number_on_another_node_write_different_files(tmp_path):
    """Under torchrun rank 1 may run on node 0 while task 1 is node 1's."""
    told = [Event(STARTED, "7.0", 1, time=1.0), Event(INTERRUPTED, "7.0", 1, time=2.0)]
    for event in told:
        record(tmp_path, event)
    assert len(list((tmp_path / "launch").iterdir())) == 2 and read(tmp_path) == told
