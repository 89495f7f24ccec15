"""A zoo of clips as the world has them: odd sizes, names and codecs, damage of every kind, each with its right verdict.

`build_zoo(root)` writes real files and returns one entry a row: what it asks about, and the reason it must be refused
for (None for those that must be used).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from clips import write_clip
from PIL import Image


@dataclass(frozen=True)
class Animal:
    """A row of the zoo: `row` as in a file of plain rows, and the verdict that is right."""

    row: dict
    reason: str | None


def build_zoo(root: Path) -> list[Animal]:
    root.mkdir(parents=True, exist_ok=True)
    animals = []
    for number, (path, reason, bounds) in enumerate(_files(root)):
        kind = "image" if path.endswith(".png") else "video"
        row = {
            "id": f"{number:02d}-{path.rpartition('/')[2]}", "question": "what moved first ?", kind: path,
            "problem_type": "free-form", "answer": "red", "rationale": "I see red .", "source": "zoo", **bounds,
        }  # fmt: skip
        animals.append(Animal(row, reason))
    return animals


def write_zoo(root: Path) -> tuple[Path, dict[str, str | None]]:
    """The zoo's row file, and the right verdict by row id."""
    animals = build_zoo(root)
    path = root / "zoo.jsonl"
    path.write_text("".join(json.dumps(animal.row) + "\n" for animal in animals), encoding="utf-8")
    return path, {animal.row["id"]: animal.reason for animal in animals}


Place = tuple[str, str | None, dict]


def _files(root: Path) -> Iterator[Place]:
    for frames in (1, 2, 3, 9, 20, 60):
        write_clip(root / f"frames{frames}.mp4", frames)
        yield f"frames{frames}.mp4", None, {}
    yield from _shapes_and_rates(root)
    yield from _codecs(root)
    yield from _names(root)
    yield from _damage(root)
    yield from _places(root)
    yield from _parts()


def _shapes_and_rates(root: Path) -> Iterator[Place]:
    for name, size, reason in (
        ("tiny.mp4", (16, 16), None),
        ("strip.mp4", (2048, 8), "aspect_ratio"),
        ("portrait.mp4", (56, 100), None),
        ("odd.mp4", (98, 54), None),
    ):
        write_clip(root / name, 8, size=size)
        yield name, reason, {}
    for angle in (90, 180, -90):
        write_clip(root / f"turned{angle}.mp4", 8, rotation=angle)
        yield f"turned{angle}.mp4", None, {}
    write_clip(root / "variable.mp4", 20, times=[0.1 * n for n in range(10)] + [1.0 + n for n in range(10)])
    yield "variable.mp4", None, {}
    write_clip(root / "no_rate.h264", 12, format="h264")
    yield "no_rate.h264", None, {}
    write_clip(root / "long_sound.mp4", 8, sound_seconds=5.0)
    yield "long_sound.mp4", None, {}


def _codecs(root: Path) -> Iterator[Place]:
    for name, codec, pix_fmt in (
        ("av1.mp4", "libsvtav1", "yuv420p"),
        ("hevc10.mp4", "libx265", "yuv420p10le"),
        ("vp9.webm", "libvpx-vp9", "yuv420p"),
        ("mpeg4.avi", "mpeg4", "yuv420p"),
        ("mjpeg.avi", "mjpeg", "yuvj420p"),
    ):
        if codec in av.codecs_available:
            write_clip(root / name, 8, codec=codec, pix_fmt=pix_fmt, size=(64, 64))
            yield name, None, {}
    unknown = (root / "frames9.mp4").read_bytes().replace(b"avc1", b"zzz9").replace(b"avcC", b"zzzC")
    (root / "unknown_codec.mp4").write_bytes(unknown)
    yield "unknown_codec.mp4", "undecodable", {}


def _names(root: Path) -> Iterator[Place]:
    content = (root / "frames9.mp4").read_bytes()
    names = ("a b.mp4", "a@b.mp4", "pct%20x.mp4", "k=v.mp4", "#1.mp4", 'it\'s "q".mp4', "视频.mp4")
    for name in names:
        (root / name).write_bytes(content)
        yield name, None, {}
    yield "file://" + str(root / "a%20b.mp4"), None, {}
    for folder in ("clevrer", "perception"):
        (root / folder).mkdir(exist_ok=True)
        write_clip(root / folder / "video_10142.mp4", 8 if folder == "clevrer" else 12)
        yield f"./{folder}/video_10142.mp4", None, {}


def _damage(root: Path) -> Iterator[Place]:
    whole = (root / "frames60.mp4").read_bytes()
    early = write_clip(root / "early.mp4", 60, container={"movflags": "faststart"}).read_bytes()
    for name, content, reason in (
        ("half.mp4", whole[: len(whole) // 2], "undecodable"),
        ("half_early_index.mp4", early[: len(early) * 3 // 4], "truncated"),
        ("zero.mp4", b"", "empty"),
        ("text.mp4", b"not a video\n" * 99, "undecodable"),
    ):
        (root / name).write_bytes(content)
        yield name, reason, {}
    declared = write_clip(root / "declares_more.avi", 60, codec="mjpeg", pix_fmt="yuvj420p")
    with av.open(str(declared)) as container:
        positions = [packet.pos for packet in container.demux(video=0) if packet.size]
    declared.write_bytes(declared.read_bytes()[: positions[40]])
    yield "declares_more.avi", "truncated", {}
    scratched = write_clip(root / "scratched.mp4", 60, gop=10, options={"crf": "5"})
    with av.open(str(scratched)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    content = bytearray(scratched.read_bytes())
    for position, size in packets[20:50]:
        content[position : position + size] = bytes(size)
    scratched.write_bytes(content)
    yield "scratched.mp4", "damaged", {}
    with av.open(str(root / "sound_only.mp4"), "w") as output:
        stream = output.add_stream("aac", rate=16000, layout="mono")
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        silence.sample_rate, silence.pts = 16000, 0
        output.mux(stream.encode(silence))
        output.mux(stream.encode())
    yield "sound_only.mp4", "no_video", {}
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(root / "sound.png")
    yield "sound.png", None, {}
    content = (root / "sound.png").read_bytes()
    (root / "half.png").write_bytes(content[: len(content) // 2])
    yield "half.png", "damaged", {}


def _places(root: Path) -> Iterator[Place]:
    yield "nowhere.mp4", "missing", {}
    (root / "folder.mp4").mkdir(exist_ok=True)
    yield "folder.mp4", "not_a_file", {}
    if not (root / "pipe.mp4").exists():
        os.mkfifo(root / "pipe.mp4")
    yield "pipe.mp4", "not_a_file", {}
    yield "../outside.mp4", "outside_root", {}
    yield "https://example.com/clip.mp4", "remote", {}


def _parts() -> Iterator[Place]:
    yield "frames60.mp4", None, {"start": 2.0, "end": 4.0}
    yield "frames60.mp4", "bounds", {"start": 20.0}
    yield "frames60.mp4", "bounds", {"start": 1.0, "end": 60.0}
