import pickle
from pathlib import Path
from urllib.parse import quote

import pytest

from ktr.data.paths import MediaError, resolve_media
from ktr.data.rows import Media


def resolve(path: str, root: Path | None) -> Path:
    return resolve_media(Media("video", path), root)


@pytest.mark.parametrize("name", ["a b@c 视频.mp4", "pct%20x.mp4", "a=b#c?d.mp4", 'it\'s "q".mp4', "a[1]&(2)~;.mp4"])
def test_any_name_is_found_plain_and_as_file_address(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(b"x")
    assert resolve(name, tmp_path) == file
    assert resolve(f"./{name}", tmp_path) == file
    assert resolve(str(file), tmp_path) == file
    assert resolve(f"file://{file}", tmp_path) == file
    assert resolve(f"file://{quote(str(file))}", None) == file
    assert resolve(f"file://localhost{quote(str(file))}", None) == file


def test_an_escape_is_literal_without_file_address(tmp_path):
    (tmp_path / "a b.mp4").write_bytes(b"x")
    assert not resolve("a%20b.mp4", tmp_path).exists()


def test_same_name_in_two_folders_stays_apart(tmp_path):
    assert resolve("clevrer/v.mp4", tmp_path) != resolve("perception/v.mp4", tmp_path)


def test_no_character_is_lost_and_the_start_folder_does_not_matter(tmp_path, monkeypatch):
    expected = tmp_path / "videos" / "x.mp4"
    monkeypatch.chdir("/")
    assert resolve("videos/x.mp4", tmp_path) == resolve("./videos/x.mp4", tmp_path) == expected


@pytest.mark.parametrize("path", ["../x.mp4", "v/../../x.mp4", "/etc/passwd", "file:///etc/passwd", "file:///%65tc/x"])
def test_paths_stay_under_the_root(tmp_path, path):
    with pytest.raises(MediaError) as caught:
        resolve(path, tmp_path / "root")
    assert caught.value.reason == "outside_root"


def test_links_inside_the_root_may_point_elsewhere(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "v").symlink_to(tmp_path / "far")
    assert resolve("v/x.mp4", tmp_path / "root") == tmp_path / "root" / "v" / "x.mp4"


def test_remote_media_are_refused():
    with pytest.raises(MediaError, match="download") as caught:
        resolve("https://example.org/x.mp4", None)
    assert caught.value.reason == "remote"


def test_the_error_survives_a_worker_process():
    error = pickle.loads(pickle.dumps(MediaError("/v/x.mp4", "empty", "the file has 0 bytes")))
    assert (error.path, error.reason, str(error)) == ("/v/x.mp4", "empty", "/v/x.mp4: the file has 0 bytes [empty]")
