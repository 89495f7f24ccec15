import itertools
import subprocess
import sys
import time

import av
import numpy as np
import pytest
import torch
from clips import frame_numbers, write_clip
from PIL import Image

from ktr.data.media import Frames, FrameSampling, MediaError, load_frames, reorder_frames, resize_frames
from ktr.data.rows import Media

VIDEO = Media("video", "x.mp4")
EIGHT = FrameSampling(nframes=8, min_pixels=56 * 56)


def load(path, sampling=EIGHT, media=VIDEO, **settings) -> Frames:
    return load_frames(path, media, sampling, **({"factor": 28} | settings))


def refused(path, *args, **settings) -> MediaError:
    with pytest.raises(MediaError) as caught:
        load(path, *args, **settings)
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(("frames", "expected"), [(1, [0, 0]), (2, [0, 1]), (3, [0, 2]), (9, [0, 1, 2, 3, 5, 6, 7, 8])])
def test_short_clips_give_what_they_have_and_say_so(clips, frames, expected):
    found = load(clips(f"n{frames}.mp4", frames), FrameSampling(nframes=16))
    assert frame_numbers(found.pixels_T3HW) == list(found.indices) == expected
    assert found.clamped and found.total_frames == frames
    assert found.repeated == (frames == 1)


def test_a_long_enough_clip_is_neither_clamped_nor_repeated(clips):
    found = load(clips("n60.mp4", 60))
    assert frame_numbers(found.pixels_T3HW) == [0, 8, 17, 25, 34, 42, 51, 59]
    assert not found.clamped and not found.repeated
    assert found.pixels_T3HW.dtype == torch.uint8 and found.backend == "pyav"
    assert (found.source_size, found.total_frames) == ((56, 64), 60)
    assert (found.duration, found.fps) == (pytest.approx(6.0), pytest.approx(10.0))


def test_a_part_of_a_second_at_one_frame_a_second(clips):
    found = load(clips("n4.mp4", 4), FrameSampling(fps=1.0))
    assert frame_numbers(found.pixels_T3HW) == [0, 1, 2, 3]


def test_seconds_per_grid_follow_the_frames_used(clips):
    path = clips("nineteen_seconds.mp4", 152, rate=8, size=(56, 56), options={"preset": "ultrafast"})
    found = {fps: load(path, FrameSampling(fps=fps)) for fps in (1.0, 2.0, 4.0)}
    # 19 frames are made even: 18 frames share the 19 s.
    assert found[1.0].second_per_grid == pytest.approx(2 * 19 / 18)
    assert found[2.0].second_per_grid == pytest.approx(1.0)
    assert found[4.0].second_per_grid == pytest.approx(0.5)


def test_variable_rate_is_sampled_by_presentation_time(clips):
    times = [0.1 * number for number in range(10)] + [1.0 + number for number in range(10)]
    found = load(clips("variable.mp4", 20, times=times))
    assert frame_numbers(found.pixels_T3HW) == list(found.indices) == [0, 10, 12, 13, 15, 16, 18, 19]
    assert found.times == pytest.approx([times[index] for index in found.indices], abs=2e-3)


def test_a_file_without_rate_or_times_gets_what_can_be_known(clips):
    found = load(clips("raw.h264", 30, format="h264"))
    assert frame_numbers(found.pixels_T3HW) == list(found.indices)


@pytest.mark.parametrize(
    ("start", "end", "first", "last"), [(2.0, 4.0, 20, 40), (None, 1.0, 0, 10), (5.0, None, 50, 59)]
)
def test_bounds_choose_the_part(clips, start, end, first, last):
    found = load(clips("n60.mp4", 60), media=Media("video", "x.mp4", start, end))
    assert (found.indices[0], found.indices[-1]) == (first, last)
    assert frame_numbers(found.pixels_T3HW) == list(found.indices)


def test_a_part_between_two_frames_repeats_the_one_on_screen(clips):
    found = load(clips("n60.mp4", 60), media=Media("video", "x.mp4", 2.02, 2.08))
    assert found.indices == (20, 20) and found.repeated


def test_bounds_past_the_end(clips):
    assert refused(clips("n60.mp4", 60), media=Media("video", "x.mp4", 20.0)).reason == "bounds"
    assert load(clips("n60.mp4", 60), media=Media("video", "x.mp4", 1.0, 60.0)).clamped


def test_every_wrong_file_has_its_reason(tmp_path, clips):
    whole = clips("n60.mp4", 60).read_bytes()
    early_index = clips("early_index.mp4", 60, container={"movflags": "faststart"}).read_bytes()
    sound = tmp_path / "sound.mp4"
    with av.open(str(sound), "w") as output:
        stream = output.add_stream("aac", rate=16000, layout="mono")
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        silence.sample_rate, silence.pts = 16000, 0
        output.mux(stream.encode(silence))
        output.mux(stream.encode())
    files = {
        "half.mp4": (whole[: len(whole) // 2], "undecodable"),
        "half_early_index.mp4": (early_index[: len(early_index) * 3 // 4], "truncated"),
        "zero.mp4": (b"", "empty"),
        "text.mp4": (b"not a video\n" * 99, "undecodable"),
    }
    for name, (content, reason) in files.items():
        (tmp_path / name).write_bytes(content)
        assert refused(tmp_path / name).reason == reason, name
    assert refused(sound).reason == "no_video"
    assert refused(tmp_path / "none.mp4").reason == "missing"
    assert refused(tmp_path / "zero.mp4" / "x.mp4").reason == "missing"
    assert refused(tmp_path / ("long" * 99)).reason == "unreadable"
    assert refused(tmp_path).reason == "not_a_file"
    assert refused(clips("wide.mp4", 4, size=(2048, 8))).reason == "aspect_ratio"


def test_the_first_cause_is_chained(tmp_path):
    (tmp_path / "text.mp4").write_text("not a video")
    assert isinstance(refused(tmp_path / "text.mp4").__cause__, av.FFmpegError)


@pytest.mark.parametrize("damage", ["erased", "scratched"])
def test_damaged_frames_are_never_replaced_by_their_neighbours(tmp_path, damage):
    path = write_clip(tmp_path / "x.mp4", 60, gop=10, options={"crf": "5"})
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    content = bytearray(path.read_bytes())
    for position, size in packets[30:50]:
        if damage == "erased":
            content[position : position + size] = bytes(size)
        else:
            content[position + size // 3 : position + size // 2] = b"\xa5" * (size // 2 - size // 3)
    path.write_bytes(content)
    assert refused(path, FrameSampling(nframes=20)).reason == "damaged"
    intact = load(path, FrameSampling(nframes=4), media=Media("video", "x.mp4", 0.0, 1.9))
    assert frame_numbers(intact.pixels_T3HW) == list(intact.indices)


def test_a_declared_count_is_not_trusted(tmp_path):
    path = write_clip(tmp_path / "x.avi", 60, codec="mjpeg", pix_fmt="yuvj420p")
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 60
        positions = [packet.pos for packet in container.demux(video=0) if packet.size]
    path.write_bytes(path.read_bytes()[: positions[-1]])
    found = load(path)
    assert found.total_frames == 59 and found.indices[-1] == 58
    assert frame_numbers(found.pixels_T3HW) == list(found.indices)
    path.write_bytes(path.read_bytes()[: positions[40]])
    assert refused(path).reason == "truncated"


def test_frames_are_resized_once_as_torchvision_does():
    functional = pytest.importorskip("torchvision.transforms.functional")
    pixels_T3HW = torch.randint(0, 256, (3, 3, 97, 131), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for size in [(56, 84), (196, 280)]:
        expected = functional.resize(
            pixels_T3HW, list(size), interpolation=functional.InterpolationMode.BICUBIC, antialias=True
        )
        assert torch.equal(resize_frames(pixels_T3HW, size), expected)


@pytest.mark.parametrize("factor", [28, 32])
def test_sizes_are_multiples_of_the_factor_within_the_budget(clips, factor):
    sampling = FrameSampling(nframes=4, min_pixels=4 * 784, max_pixels=16 * 784)
    found = load(clips("portrait.mp4", 12, size=(180, 320)), sampling, factor=factor)
    height, width = found.pixels_T3HW.shape[-2:]
    assert height % factor == width % factor == 0 and height > width
    assert height * width <= 16 * 784 and found.source_size == (320, 180)
    fewer = load(clips("portrait.mp4"), FrameSampling(nframes=4, min_pixels=784, total_pixels=8 * 784), factor=factor)
    assert fewer.pixels_T3HW.shape[-2] * fewer.pixels_T3HW.shape[-1] <= 4 * 784


def test_many_frames_are_resized_in_batches(clips):
    found = load(clips("n60.mp4", 60), FrameSampling(nframes=60))
    assert frame_numbers(found.pixels_T3HW) == list(range(60))


def test_the_digest_is_that_of_the_content(clips, tmp_path):
    path = clips("n60.mp4", 60)
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(path.read_bytes())
    assert load(path).digest == load(copy).digest
    assert load(path).digest != load(path, FrameSampling(nframes=6)).digest


def test_reordered_frames_keep_their_moments(clips):
    frames = load(clips("n60.mp4", 60))
    order = [7, 0, 1, 2, 3, 4, 5, 6]
    shuffled = reorder_frames(frames, order)
    assert frame_numbers(shuffled.pixels_T3HW) == [frames.indices[index] for index in order]
    assert (shuffled.times, shuffled.second_per_grid) == (frames.times, frames.second_per_grid)
    assert shuffled.digest != frames.digest
    assert reorder_frames(frames, range(8)).digest == frames.digest
    with pytest.raises(AssertionError):
        reorder_frames(frames, [0] * 8)


def test_names_with_any_character_are_read(clips, tmp_path):
    content = clips("n9.mp4", 9).read_bytes()
    for name in ["a b@c 视频.mp4", "pct%20x.mp4", 'it\'s #1 "q"=x.mp4', "frame%03d.mp4", "concat:x.mp4"]:
        path = tmp_path / name
        path.write_bytes(content)
        assert load(path).total_frames == 9


def test_a_relative_name_that_looks_like_a_protocol(clips, tmp_path, monkeypatch):
    (tmp_path / "pipe:0.mp4").write_bytes(clips("n9.mp4", 9).read_bytes())
    monkeypatch.chdir(tmp_path)
    assert load("pipe:0.mp4").total_frames == 9


IMAGE = Media("image", "x.png")


def test_an_image_is_one_upright_frame(tmp_path):
    pixels = np.zeros((40, 80, 3), np.uint8)
    pixels[:, :40] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    found = load(tmp_path / "turned.jpg", FrameSampling(nframes=8, min_pixels=56 * 112), media=IMAGE)
    assert found.pixels_T3HW.shape == (1, 3, 112, 56)
    assert found.pixels_T3HW[0, :, 4].min() > 200 and found.pixels_T3HW[0, :, -4].max() < 60
    assert (found.kind, found.source_size, found.backend, found.duration) == ("image", (80, 40), "pil", None)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1"])
def test_images_of_every_mode_become_rgb_on_white(tmp_path, mode):
    suffix = "tif" if mode == "CMYK" else "png"
    image = Image.new("RGBA", (56, 56), (0, 0, 0, 0)) if "A" in mode else Image.new("RGB", (56, 56), "white")
    image.convert(mode).save(tmp_path / f"x.{suffix}")
    found = load(tmp_path / f"x.{suffix}", media=IMAGE)
    assert found.pixels_T3HW.shape == (1, 3, 56, 56) and int(found.pixels_T3HW.min()) == 255


def test_a_broken_image_has_its_reason(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    (tmp_path / "half.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.png").write_text("not an image")
    assert refused(tmp_path / "half.png", media=IMAGE).reason == "damaged"
    assert refused(tmp_path / "text.png", media=IMAGE).reason == "undecodable"


def test_small_clips_are_read_quickly(clips):
    path = clips("toy.mp4", 8, size=(56, 56), rate=4)
    sampling = FrameSampling(nframes=8, min_pixels=56 * 56, max_pixels=56 * 56)
    load(path, sampling)
    begin = time.process_time()
    for _ in range(50):
        load(path, sampling)
    assert (time.process_time() - begin) / 50 < 0.02


def test_two_loads_are_identical(clips):
    first, second = load(clips("n60.mp4", 60)), load(clips("n60.mp4", 60))
    assert torch.equal(first.pixels_T3HW, second.pixels_T3HW) and first.digest == second.digest


def test_rows_prompts_and_sampling_do_not_import_torch():
    code = "import sys, ktr.data.importers, ktr.data.prompts, ktr.data.sampling; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_real_clip(fixtures):
    found = load(fixtures / "video" / "billiards.mp4", FrameSampling(fps=2.0))
    assert found.pixels_T3HW.shape == (44, 3, 224, 420)
    assert (found.total_frames, found.fps) == (491, pytest.approx(22.29, abs=0.01))
    assert found.second_per_grid == pytest.approx(2 * 22.03 / 44, abs=1e-3)
    assert all(a < b for a, b in itertools.pairwise(found.times))
