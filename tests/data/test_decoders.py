import numpy as np
import pytest

from ktr.data import decoders, pyav_reader
from ktr.data.decoders import ORDER, available_decoders, decoder_order, why_unavailable, with_decoder
from ktr.data.paths import MediaError

ROTATIONS = (0, 90, -90, 180)


def needs(name: str) -> None:
    if why_unavailable(name) is not None:
        pytest.skip(f"{name} does not work here: {why_unavailable(name)}")


def read_all(path, name):
    def read(reader, _):
        return np.stack(list(reader.read(range(len(reader.times_N))))), reader.times_N

    return with_decoder(path, name, read)


def test_pyav_works_and_comes_first():
    assert why_unavailable("pyav") is None
    assert available_decoders()[0] == ORDER[0] == "pyav"
    assert decoder_order("auto") == available_decoders()


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("other", ORDER[1:])
def test_decoders_agree_pixel_by_pixel(clips, other, rotation):
    needs(other)
    path = clips(f"turned{rotation}.mp4", 12, size=(128, 64), rotation=rotation)
    expected, expected_times = read_all(path, "pyav")
    found, times = read_all(path, other)
    assert found.shape == expected.shape
    assert np.abs(times - expected_times).max() < 1e-3
    assert np.abs(found.astype(int) - expected).mean() < 1.5
    assert np.abs(found.astype(int) - expected).max() <= 24


@pytest.mark.parametrize("other", ORDER[1:])
def test_decoders_agree_on_a_real_clip(fixtures, other):
    needs(other)
    path = fixtures / "video" / "billiards.mp4"

    def read(reader, _):
        return len(reader.times_N), reader.times_N, np.stack(list(reader.read([0, 17, 90])))

    count, times, expected = with_decoder(path, "pyav", read)
    other_count, other_times, found = with_decoder(path, other, read)
    assert count == other_count == 491
    assert np.abs(times - other_times).max() < 1e-3
    assert np.abs(found.astype(int) - expected).mean() < 2.0


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_frames_are_upright(clips, rotation):
    frames, _ = read_all(clips(f"turned{rotation}.mp4", 12, size=(128, 64), rotation=rotation), "pyav")
    height, width = {0: (64, 128), 180: (64, 128)}.get(rotation, (128, 64))
    assert frames.shape == (12, height, width, 3)
    corners = {"top left": (4, 4), "top right": (4, -4), "bottom left": (-4, 4), "bottom right": (-4, -4)}
    white = next(name for name, at in corners.items() if frames[0][at].min() > 200)
    # Counterclockwise turns, as ffmpeg's display matrix counts them.
    expected = {0: "top left", 90: "bottom left", -90: "top right", 180: "bottom right"}
    assert white == expected[rotation]


def test_an_odd_angle_is_refused(clips):
    with pytest.raises(MediaError) as caught:
        read_all(clips("turned45.mp4", 2, rotation=45), "pyav")
    assert caught.value.reason == "rotation"


CONTAINERS = {
    "plain.mp4": {},
    "b_frames.mp4": {"options": {"x264-params": "open-gop=1:keyint=6:bframes=3"}},
    "fragmented.mov": {"container": {"movflags": "frag_keyframe+empty_moov"}},
    "late.mp4": {"container": {"use_editlist": "0"}},
    "plain.mkv": {},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "h264.avi": {},
    "stream.ts": {"format": "mpegts"},
    "raw.h264": {"format": "h264"},
    "av1.mp4": {"codec": "libsvtav1", "options": {"preset": "12"}},
    "picture.gif": {"codec": "gif", "pix_fmt": "rgb8"},
}


@pytest.mark.parametrize("way", ["kept", "sought", "threads"])
@pytest.mark.parametrize("name", CONTAINERS)
def test_single_frames_equal_those_of_a_full_pass(clips, monkeypatch, name, way):
    path = clips(name, 30, **CONTAINERS[name])
    expected, times = read_all(path, "pyav")
    assert len(times) == 30 and times[0] == 0 and (np.diff(times) > 0).all()
    if way == "sought":
        monkeypatch.setattr(pyav_reader, "KEEP_PACKETS_BYTES", 0)
    if way == "threads":
        monkeypatch.setattr(pyav_reader, "THREADED_PIXELS", 0)
    wanted = [0, 1, 7, 7, 16, 29]
    found = with_decoder(path, "pyav", lambda reader, _: np.stack(list(reader.read(wanted))))
    assert (found == expected[wanted]).all()


@pytest.mark.parametrize("name", ["late.mp4", "stream.ts", "mpeg4.avi"])
def test_decord_refuses_what_it_would_number_wrongly(clips, name):
    needs("decord")
    with pytest.raises(MediaError) as caught:
        read_all(clips(name, 30, **CONTAINERS[name]), "decord")
    assert caught.value.reason == "undecodable"


def test_decord_works_under_another_bridge(clips):
    needs("decord")
    import decord

    path = clips("plain.mp4", 30)
    expected, _ = read_all(path, "decord")
    decord.bridge.set_bridge("torch")
    try:
        assert (read_all(path, "decord")[0] == expected).all()
    finally:
        decord.bridge.set_bridge("native")


def failing(reason):
    def open_it(path):
        raise MediaError(path, reason, f"the first decoder says {reason}")

    return open_it


def test_the_next_decoder_is_asked_when_the_first_cannot_decode(clips, monkeypatch, caplog):
    monkeypatch.setitem(decoders.OPENERS, "pyav", failing("undecodable"))
    monkeypatch.setitem(decoders.OPENERS, "decord", decoders._open_pyav)
    monkeypatch.setattr(decoders, "why_unavailable", lambda name: "absent" if name == "torchcodec" else None)
    assert with_decoder(clips("plain.mp4", 30), "auto", lambda reader, name: name) == "decord"
    assert "the first decoder says undecodable" in caplog.text


def test_the_first_error_is_kept_when_all_fail(clips, monkeypatch):
    monkeypatch.setattr(decoders, "why_unavailable", lambda name: "absent" if name == "torchcodec" else None)
    monkeypatch.setitem(decoders.OPENERS, "pyav", failing("no_video"))
    monkeypatch.setitem(decoders.OPENERS, "decord", failing("undecodable"))
    with pytest.raises(MediaError, match="the first decoder says no_video"):
        with_decoder(clips("plain.mp4", 30), "auto", lambda reader, name: name)


@pytest.mark.parametrize("reason", ["damaged", "truncated", "bounds"])
def test_no_other_decoder_is_asked_about_a_damaged_file_or_a_bad_request(clips, monkeypatch, reason):
    monkeypatch.setitem(decoders.OPENERS, "pyav", failing(reason))
    with pytest.raises(MediaError) as caught:
        with_decoder(clips("plain.mp4", 30), "auto", lambda reader, name: name)
    assert caught.value.reason == reason


def test_a_decoder_that_is_only_installed_is_not_available(monkeypatch):
    class Wrong:
        times_N = np.arange(3) / 10

        def read(self, indices):
            return iter([np.zeros((32, 32, 3), np.uint8)] * len(indices))

        def close(self):
            pass

    why_unavailable.cache_clear()
    monkeypatch.setitem(decoders.OPENERS, "torchcodec", lambda path: Wrong())
    try:
        assert "brightness" in why_unavailable("torchcodec")
        with pytest.raises(MediaError, match="no video decoder works here.*torchcodec"):
            decoder_order("torchcodec")
    finally:
        why_unavailable.cache_clear()


def test_an_unknown_decoder_lists_the_known():
    with pytest.raises(ValueError, match="auto, pyav, torchcodec, decord"):
        decoder_order("opencv")
