from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import av
import pytest
import torch
from PIL import Image
from transformers.video_utils import VideoMetadata

import ktr.models.prompt_encoder as module
from ktr.data.media import Frames
from ktr.data.rows import Media, Row
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.loading import LoadedModel
from ktr.models.prompt_encoder import PromptEncoder, PromptTooLongError


def processor_outputs(loaded: LoadedModel, prompt: EncodedPrompt) -> dict[str, torch.Tensor]:
    """The whole processor's own call on the same frames."""
    frames = prompt.frames
    text = prompt.text
    if frames.kind == "image":
        return loaded.processor(text=[text], images=[frames.pixels_T3HW[0]], do_resize=False, return_tensors="pt")
    if loaded.family.name == "qwen3_vl":
        # The processor keeps the template's outer markers around the timestamps; the model was trained without.
        text = text.replace("<|vision_start|><|video_pad|><|vision_end|>", "<|video_pad|>")
    metadata = VideoMetadata(
        total_num_frames=frames.total_frames,
        fps=frames.fps,
        duration=frames.duration,
        frames_indices=list(frames.indices),
    )
    return loaded.processor(
        text=[text],
        videos=[frames.pixels_T3HW],
        video_metadata=[metadata],
        do_resize=False,
        do_sample_frames=False,
        return_tensors="pt",
    )


@pytest.mark.parametrize("kind", ["video", "image"])
def test_ids_and_pixels_are_the_processors_own(
    loaded: LoadedModel, encoder: PromptEncoder, new_row: Callable, new_frames: Callable, kind: str
) -> None:
    prompt = encoder.encode_frames(new_row(kind), new_frames(loaded.family.resize_factor, kind=kind))
    theirs = processor_outputs(loaded, prompt)
    pixels, grid = ("pixel_values", "image_grid_thw") if kind == "image" else ("pixel_values_videos", "video_grid_thw")
    assert torch.equal(prompt.pixel_values_ND, theirs[pixels])
    assert [list(prompt.grid_thw)] == theirs[grid].tolist()
    assert torch.equal(prompt.input_ids_P, theirs["input_ids"][0])
    if loaded.family.name == "qwen2_5_vl" and kind == "video":
        assert prompt.second_per_grid == pytest.approx(float(theirs["second_per_grid_ts"][0]))
    tokens = prompt.grid_thw[0] * prompt.grid_thw[1] * prompt.grid_thw[2] // 4
    assert int(prompt.visual_mask_P.sum()) == tokens == (48 if kind == "video" else 12)


def test_text_has_one_unexpanded_placeholder(
    loaded: LoadedModel, encoder: PromptEncoder, new_row: Callable, new_frames: Callable
) -> None:
    prompt = encoder.encode_frames(new_row(), new_frames(loaded.family.resize_factor))
    assert prompt.text == (
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>which colour came first?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt.modality == "video"
    assert prompt.next_position == int(prompt.position_ids_3P[0, -1]) + 1


def test_qwen3_timestamps_are_the_frames_times(
    loaded_models: dict[str, LoadedModel], new_encoder: Callable, new_row: Callable, new_frames: Callable
) -> None:
    """A variable frame rate: index / average rate would give other stamps."""
    loaded = loaded_models["qwen3_vl"]
    frames = replace(new_frames(32, count=4, grid=(1, 2)), times=(0.0, 0.26, 7.5, 9.1))
    prompt = new_encoder(loaded).encode_frames(new_row(question="q"), frames)
    pad = "<|video_pad|>"
    assert loaded.processor.tokenizer.decode(prompt.input_ids_P) == (
        f"<|im_start|>user\n<0.1 seconds><|vision_start|>{pad}{pad}<|vision_end|>"
        f"<8.3 seconds><|vision_start|>{pad}{pad}<|vision_end|>q<|im_end|>\n<|im_start|>assistant\n"
    )


def test_other_order_changes_pixels_only(
    loaded: LoadedModel, encoder: PromptEncoder, new_row: Callable, new_frames: Callable
) -> None:
    frames = new_frames(loaded.family.resize_factor, count=4)
    prompt = encoder.encode_frames(new_row(), frames)
    order = (3, 1, 0, 2)
    shuffled = encoder.with_frame_order(prompt, order)
    assert torch.equal(shuffled.frames.pixels_T3HW, frames.pixels_T3HW[list(order)])
    assert shuffled.frames.times == frames.times
    assert torch.equal(shuffled.input_ids_P, prompt.input_ids_P)
    assert torch.equal(shuffled.position_ids_3P, prompt.position_ids_3P)
    assert not torch.equal(shuffled.pixel_values_ND, prompt.pixel_values_ND)
    again = encoder.encode_frames(new_row(), shuffled.frames)
    assert torch.equal(again.pixel_values_ND, shuffled.pixel_values_ND)
    back = encoder.with_frame_order(shuffled, [order.index(place) for place in range(4)])
    assert torch.equal(back.pixel_values_ND, prompt.pixel_values_ND)


def test_without_frames_the_prompt_is_text(encoder: PromptEncoder, new_row: Callable, new_frames: Callable) -> None:
    prompt = encoder.encode_frames(new_row(), None)
    assert (prompt.modality, prompt.pixel_values_ND, prompt.grid_thw, prompt.frames) == ("text", None, None, None)
    assert not prompt.visual_mask_P.any()
    assert not torch.isin(prompt.input_ids_P, torch.tensor(encoder.family.placeholder_ids)).any()
    with pytest.raises(ValueError, match="shows no video"):
        encoder.with_frame_order(prompt, (0, 1))


def test_long_prompts_are_refused_and_never_cut(
    loaded: LoadedModel, new_encoder: Callable, new_row: Callable, new_frames: Callable
) -> None:
    frames = new_frames(loaded.family.resize_factor)
    length = len(new_encoder(loaded).encode_frames(new_row(), frames).input_ids_P)
    assert len(new_encoder(loaded, max_prompt_tokens=length).encode_frames(new_row(), frames)) == length
    message = rf"row 'r1'.* {length} tokens and data.max_prompt_tokens is {length - 1}"
    with pytest.raises(PromptTooLongError, match=message):
        new_encoder(loaded, max_prompt_tokens=length - 1).encode_frames(new_row(), frames)


def test_frames_of_another_factor_are_refused(
    loaded: LoadedModel, encoder: PromptEncoder, new_row: Callable, new_frames: Callable
) -> None:
    other = 28 if loaded.family.resize_factor == 32 else 32
    with pytest.raises(ValueError, match=f"multiples of {loaded.family.resize_factor}"):
        encoder.encode_frames(new_row(), new_frames(other, grid=(1, 1)))


def test_special_tokens_in_the_question_are_refused(
    loaded: LoadedModel, new_encoder: Callable, new_row: Callable
) -> None:
    encoder = new_encoder(loaded)

    class Injecting:
        def render(self, row: Row, duration: float | None = None) -> str:
            return row.question + " <|video_pad|>"

    encoder.template = Injecting()
    with pytest.raises(ValueError, match=r"row 'r1'.*<\|video_pad\|>"):
        encoder.encode_frames(new_row(), None)


def test_processor_of_another_family_is_refused(loaded_models: dict[str, LoadedModel], new_encoder: Callable) -> None:
    mixed = loaded_models["qwen3_vl"]._replace(processor=loaded_models["qwen2_vl"].processor)
    with pytest.raises(ValueError, match="same checkpoint"):
        new_encoder(mixed)


def test_target_ends_with_the_turn(encoder: PromptEncoder, new_row: Callable) -> None:
    ids = encoder.target_ids(new_row())
    assert encoder.tokenizer.decode(ids) == "<think>the disc is red</think><answer>red</answer><|im_end|>"
    assert ids[-1] == encoder.tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_media_are_decoded_once(
    encoder: PromptEncoder, new_row: Callable, new_frames: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: Frames = new_frames(encoder.family.resize_factor)
    calls = []

    def read(path: object, media: Media, *args: object, **kwargs: object) -> Frames:
        calls.append((media, kwargs))
        return frames

    monkeypatch.setattr(module, "load_frames", read)
    first = encoder.encode(new_row(question="what?"))
    second = encoder.encode(new_row(question="when?"))
    assert first.frames is second.frames
    assert [kwargs["factor"] for _, kwargs in calls] == [encoder.family.resize_factor]
    encoder.encode(new_row(row_id="r2"))
    assert len(calls) == 2


def test_real_files_of_both_kinds_are_encoded(
    loaded: LoadedModel, new_encoder: Callable, new_row: Callable, tmp_path: Path
) -> None:
    colours = [(250, 20 * shade, 0) for shade in range(12)]
    with av.open(str(tmp_path / "v.bin"), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=4)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for colour in colours:
            frame = av.VideoFrame.from_image(Image.new("RGB", (96, 64), colour))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    Image.new("RGB", (96, 64), (0, 0, 250)).save(tmp_path / "i.bin", format="png")
    encoder = new_encoder(loaded, media_root=tmp_path)

    video = encoder.encode(new_row(row_id="v"))
    assert (video.modality, video.grid_thw[0], len(video.frames.times)) == ("video", 4, 8)
    assert video.second_per_grid == pytest.approx(0.75)
    assert torch.equal(video.pixel_values_ND, processor_outputs(loaded, video)["pixel_values_videos"])

    image = encoder.encode(new_row("image", row_id="i"))
    assert (image.modality, image.grid_thw[0], image.second_per_grid) == ("image", 1, None)
    assert torch.equal(image.pixel_values_ND, processor_outputs(loaded, image)["pixel_values"])
    with pytest.raises(ValueError, match="no such file"):
        encoder.encode(new_row(row_id="missing"))
