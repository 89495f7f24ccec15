from __future__ import annotations

import json

from ktr.training.run_folder import RunFolder, versions


def test_lines_are_appended_whole_and_json(tmp_path):
    folder = RunFolder(tmp_path / "outputs" / "run")
    folder.append(folder.metrics, {"loss": 1.5, "name": "é", "broken": [float("inf"), {"x": float("nan")}]})
    folder.append(folder.metrics, {"loss": 2})
    lines = folder.metrics.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"loss": 1.5, "name": "é", "broken": [None, {"x": None}]},
        {"loss": 2},
    ]
    assert folder.read_metrics() == [json.loads(line) for line in lines]


def test_a_file_is_replaced_as_a_whole(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write("config.yaml", "a: 1\n")
    path = folder.write("config.yaml", "a: 2\n")
    assert path.read_text() == "a: 2\n" and sorted(p.name for p in tmp_path.iterdir()) == ["config.yaml"]
    assert json.loads(folder.write("summary.json", {"x": float("nan")}).read_text()) == {"x": None}


def test_only_the_main_process_writes(tmp_path):
    folder = RunFolder(tmp_path / "run", is_main=False)
    folder.append(folder.metrics, {"loss": 1})
    folder.write("config.yaml", "a: 1")
    assert not folder.path.exists() and folder.read_metrics() == []


def test_versions_say_what_decided_the_results():
    found = versions()
    assert {"torch", "transformers", "trl"} <= found["packages"].keys()
    assert found["python"].startswith("3.") and "git_commit" in found
