"""`prepare.py` through its config and its command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from clips import write_clip

from ktr.config.compose import CONF_DIR, compose
from ktr.config.fields import ConfigError
from ktr.config.overrides import quote
from ktr.config.schema_prepare import JOBS, PrepareConfig
from ktr.config.validate import check_files, validate
from ktr.data import prepare
from ktr.data.importers import load_rows
from ktr.data.rows import RowError
from ktr.data.run_rows import load_run_rows, media_root, source_rows
from ktr.models.toy_model import build_toy_checkpoint

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def config(*overrides) -> PrepareConfig:
    return validate(compose("prepare", overrides), PrepareConfig)


def path(key, value) -> str:
    return f"{key}={quote(str(value))}"


def write_rows_file(file: Path, *records: dict) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def record(number, **values) -> dict:
    return {"id": f"{number}", "question": "what moved first ?", "answer": "red", "video": f"{number}.mp4", **values}


@pytest.fixture
def videos(tmp_path):
    """Three rows about clips of different lengths, and one about a file that is not there."""
    for number in range(3):
        write_clip(tmp_path / f"{number}.mp4", 8 + 10 * number)
    rows = write_rows_file(tmp_path / "rows.jsonl", *(record(number) for number in range(4)))
    return tmp_path, [path("data.path", rows), path("data.media_root", tmp_path), path("job.out", tmp_path / "out")]


def test_every_job_has_its_file():
    assert sorted(file.stem for file in (CONF_DIR / "job").glob("*.yaml")) == sorted(JOBS) == sorted(prepare.JOBS)
    for job in JOBS:
        assert config(f"job={job}", "data.path=/r", "data.cache=/c").job.name == job


def test_the_doctor_says_what_it_found(videos):
    root, overrides = videos
    said = prepare.run(config("job=doctor", *overrides, "job.seconds=20"), root / "run")
    assert "3 of 4 rows can be used, 1 cannot" in said and "1 missing" in said
    assert {file.name for file in (root / "out").iterdir()} == {
        "checked.jsonl", "config.yaml", "rejects.jsonl", "summary.json", "verified.jsonl",
    }  # fmt: skip
    settings = validate(compose("prepare", [path("data.path", root / "out" / "verified.jsonl")]), PrepareConfig).data
    settings.keep.max_seconds = 2.0
    assert [row.id for row in source_rows(settings, settings.path)] == ["0", "1"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return build_toy_checkpoint(tmp_path_factory.mktemp("toy") / "model", max_length=512, max_pixels=3136)


def test_prompts_are_counted_with_a_checkpoints_tokenizer(videos, checkpoint):
    root, overrides = videos
    exact = [*overrides, path("model.path", checkpoint), "data.prompt=toy", "data.sampling.max_pixels=3136"]
    said = prepare.run(config("job=doctor", *exact, "data.max_prompt_tokens=200"), root)
    assert "3 of 4" in said
    said = prepare.run(config("job=doctor", *exact, "data.max_prompt_tokens=20"), root)
    assert "0 of 4" in said and "3 prompt_too_long" in said
    reject = json.loads((root / "out" / "rejects.jsonl").read_text().splitlines()[0])
    assert "data.max_prompt_tokens is 20" in reject["error"]


def test_the_cache_job_fills_what_training_reads(videos):
    root, overrides = videos
    said = prepare.run(config("job=cache", *overrides, path("data.cache", root / "cache")), root)
    assert "3 entries" in said
    again = prepare.run(config("job=cache", *overrides, path("data.cache", root / "cache")), root)
    assert "3 entries" in again


def test_features_are_cached_with_the_checkpoint(videos, checkpoint):
    root, overrides = videos
    said = prepare.run(
        config(
            "job=cache", "job.features=true", "model.freeze_vision=true", path("model.path", checkpoint),
            "data.prompt=toy", "data.sampling.max_pixels=3136", path("data.cache", root / "cache"), *overrides,
        ),
        root,
    )  # fmt: skip
    assert "6 entries" in said


def test_rows_are_converted_and_what_cannot_be_is_listed(videos):
    root, overrides = videos
    rows = write_rows_file(root / "rows.jsonl", record(0), {"id": "bad", "question": "what ?"}, record(1, image="x"))
    said = prepare.run(config("job=convert", "job.format=parquet", *overrides), root)
    assert "1 rows, 2 left out" in said
    assert load_rows("plain", root / "out" / "rows.parquet") == load_rows("plain", rows, rejects=[])
    rejects = [json.loads(line) for line in (root / "out" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["id"] for reject in rejects] == ["bad", "1"]


def test_a_data_set_is_published_to_a_folder(videos):
    root, overrides = videos
    said = prepare.run(config("job=publish", *overrides), root)
    assert said.startswith("4 rows") and len(load_rows("plain", root / "out" / "dataset")) == 4


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.path=null"], "data.path: is required with data=jsonl"),
        (["data=toy"], "data=toy is rendered"),
        (["job=cache", "data.path=/r"], "data.cache: is required"),
        (["job=cache", "data.path=/r", "data.cache=/c", "job.features=true"], "model.path: is required"),
        (["data.path=/r", "job.repo=name"], "job.repo: must be owner/name"),
        (["data.path=/r", "job.seconds=0"], "job.seconds: must be above 0"),
        (["data.path=/r", "data.keep.modality=[sound]"], "data.keep.modality: lists some of"),
        (["data.path=/r", "data.keep.min_seconds=5", "data.keep.max_seconds=2"], "data.keep.min_seconds"),
        (["data.path=/r", "data.mix=[{path: /a}]"], "data.mix: takes the place of path"),
        (["data=mix", "data.mix=[{path: /a, weight: 1}, {path: /b}]"], "data.mix: gives some sources a weight"),
        (["data=mix", "data.mix=[{path: /a}]", "data.mix_rows=5"], "data.mix_rows: needs the weights"),
        (["data=mix", "data.mix=[{path: /a, format: odd}]"], r"data.mix\[0\].format: must be one of"),
    ],
)
def test_settings_that_cannot_work_are_named(overrides, message):
    with pytest.raises(ConfigError, match=message):
        config(*overrides)


def test_files_that_are_not_there_are_named_and_hub_names_are_not_files():
    check_files(config("data=hub", "data.path='hf://owner/name?split=test'"))
    with pytest.raises(ConfigError, match=r"data.mix\[0\].path: there is no /nowhere"):
        check_files(config("data=mix", "data.mix=[{path: /nowhere}]"))


def test_a_mix_of_sources_with_roots_of_their_own(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_rows_file(tmp_path / f"{name}.jsonl", *(record(n, id=f"{name}-{n}", source=name) for n in range(6)))
    sources = [
        f"{{path: {tmp_path}/{name}.jsonl, media_root: {tmp_path}/{name}, weight: {weight}}}"
        for name, weight in (("one", 2), ("two", 1))
    ]
    settings = validate(compose("train", ["data=mix", f"data.mix=[{', '.join(sources)}]"])).data
    found = load_run_rows(settings, stages=["rl"], eval_splits=[], cache=tmp_path)
    assert found.media_root is None and media_root(settings) is None
    assert sorted(row.id.partition("-")[0] for row in found.rl) == ["one"] * 6 + ["two"] * 3
    assert all(row.media.path.startswith(f"{tmp_path}/{row.source}/") for row in found.rl)


def test_subsets_and_filters_reach_the_stages(tmp_path):
    rows = write_rows_file(tmp_path / "r.jsonl", *(record(n, source="ab"[n % 2]) for n in range(40)))
    overrides = ["data=jsonl", path("data.path", rows), "data.keep.source=[b]", "data.subset=5", "data.subset_seed=3"]
    settings = validate(compose("train", overrides)).data
    found = load_run_rows(settings, stages=["rl"], eval_splits=[], cache=tmp_path).rl
    assert len(found) == 5 and {row.source for row in found} == {"b"}
    settings.subset_seed = 4
    assert load_run_rows(settings, stages=["rl"], eval_splits=[], cache=tmp_path).rl != found


def test_a_source_whose_path_leaves_its_root_is_named(tmp_path):
    rows = write_rows_file(tmp_path / "r.jsonl", record(0, video="../x.mp4"), record(1))
    (tmp_path / "v").mkdir()
    settings = config("data=mix", f"data.mix=[{{path: {rows}, media_root: {tmp_path}/v}}]").data
    with pytest.raises(RowError, match="outside_root"):
        source_rows(settings, None)
    rejects = []
    assert [row.id for row in source_rows(settings, None, rejects)] == ["1"] and len(rejects) == 1


def run_command(*arguments, cwd) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "prepare.py"), *arguments], cwd=cwd, capture_output=True, text=True, timeout=100
    )


def test_help_answers_without_torch(tmp_path):
    code = (
        f"import sys; sys.argv = ['prepare.py', '--help']; sys.path.insert(0, {str(ROOT)!r})\n"
        f"import runpy; runpy.run_path({str(ROOT / 'prepare.py')!r}, run_name='__main__')\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "job=doctor" in done.stdout and "job=publish" in done.stdout


def test_the_command_line(videos, tmp_path):
    root, _ = videos
    done = run_command(
        "job=doctor", "data=jsonl", f"data.path={root}/rows.jsonl", f"data.media_root={root}", f"job.out={root}/o=1",
        f"output_dir={root}/outputs", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "3 of 4 rows can be used, 1 cannot"
    assert "doctor: 100%" in done.stderr and (root / "o=1" / "summary.json").exists()
    failed = run_command("job=doctor", "data.path=/nowhere.jsonl", cwd=tmp_path)
    assert failed.returncode == 1 and failed.stderr.strip() == "error: data.path: there is no /nowhere.jsonl"
