"""Completions with their tokens coloured by key-token signal, the clip's frames beside them.

A token that a signal selected carries that signal's colour; several selections share the token in bands. Three lanes
under each token show how strong its scores are (relative to the completion's own 95th percentile), selected or not.
Pointing at a token shows its numbers. Works without JavaScript.

Legend: C completion tokens, T frames, H and W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ktr.reporting.files import write_atomic
from ktr.reporting.html import attribute, escape, page, png_data

SIGNALS = ("entropy", "visual", "temporal")
SIGNAL_HELP = {
    "entropy": "the policy was unsure here",
    "visual": "the token depends on seeing the video",
    "temporal": "the token depends on the order of the frames",
}
MAX_FRAMES = 16


@dataclass(frozen=True)
class FrameImage:
    """One frame as a `data:` address with its caption."""

    data: str
    caption: str


@dataclass(frozen=True)
class TokenPage:
    """What is shown of one completion.

    `tokens` are display strings (`token_strings`). Each of `scores` and `selected` maps a signal to one value per
    token; a signal that was not measured is absent, a token without a score has None. `rewards` are shown by name,
    None for an abstention. Raises ValueError when lengths differ or a signal is unknown.
    """

    heading: str
    prompt: str
    tokens: Sequence[str]
    scores: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    selected: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    weights: Sequence[float] | None = None
    frames: Sequence[FrameImage] = ()
    gold: str | None = None
    answer: str | None = None
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        unknown = sorted({*self.scores, *self.selected} - set(SIGNALS))
        if unknown:
            raise ValueError(f"unknown signals {unknown}; known are {list(SIGNALS)}")
        columns = {f"scores of {name}": values for name, values in self.scores.items()}
        columns |= {f"selected of {name}": values for name, values in self.selected.items()}
        if self.weights is not None:
            columns["weights"] = self.weights
        for name, values in columns.items():
            if len(values) != len(self.tokens):
                raise ValueError(f"{name} has {len(values)} entries for {len(self.tokens)} tokens")


class Tokenizer(Protocol):
    def convert_ids_to_tokens(self, ids: list[int]) -> list[str | None]: ...


def token_strings(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """One readable string per token id of a byte-level tokenizer.

    Bytes that are no whole character on their own show as `\\xe4`, ids without a token as `[id]`; special tokens stay
    as they are.
    """
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    return [f"[{number}]" if piece is None else _readable(piece) for number, piece in zip(ids, pieces, strict=True)]


def frame_images(
    pixels_T3HW: Any, times: Sequence[float] | None = None, *, limit: int = MAX_FRAMES, max_side: int = 224
) -> list[FrameImage]:
    """Frames (uint8, tensor or array) as PNG images captioned with their time in seconds, evenly thinned to `limit`."""
    frames_T3HW = np.asarray(pixels_T3HW)
    if frames_T3HW.ndim != 4 or frames_T3HW.shape[1] != 3 or frames_T3HW.dtype != np.uint8:
        raise ValueError(f"frames must be uint8 (T, 3, H, W), got {frames_T3HW.dtype} {frames_T3HW.shape}")
    total = len(frames_T3HW)
    shown = range(total) if total <= limit else [round(i * (total - 1) / (limit - 1)) for i in range(limit)]
    return [
        FrameImage(
            png_data(np.ascontiguousarray(frames_T3HW[place].transpose(1, 2, 0)), max_side=max_side),
            f"{times[place]:.2f} s" if times is not None else str(place),
        )
        for place in shown
    ]


def token_sections(pages: Sequence[TokenPage]) -> str:
    """The legend, with a switch for what colours the tokens, and one article per completion; HTML."""
    articles = "".join(_article(one) for one in pages)
    return f'<div class="signals">{_switch()}{articles}</div>'


def write_token_page(path: str | Path, pages: Sequence[TokenPage], *, title: str = "Key tokens") -> Path:
    """A self-contained page of coloured completions alone."""
    head = f'<header class="top"><p class="over">ktr</p><h1>{escape(title)}</h1></header>'
    return write_atomic(path, page(title, head + f"<section>{token_sections(pages)}</section>"))


def _switch() -> str:
    choices = [("key", "key tokens", "tokens the signals selected"), *((s, s, SIGNAL_HELP[s]) for s in SIGNALS)]
    radios = "".join(
        f'<label class="choice c-{value}" title="{attribute(tip)}"><input type="radio" name="signal" value="{value}"'
        f"{' checked' if value == 'key' else ''}><span>{label}</span></label>"
        for value, label, tip in choices
    )
    note = "".join(f'<span class="key" style="--key:var(--c-{s})"><b>{s}</b>: {SIGNAL_HELP[s]}</span>' for s in SIGNALS)
    return (
        f'<fieldset class="switch"><legend>Colour tokens by</legend>{radios}</fieldset>'
        f'<p class="legend wide">{note}</p>'
    )


def _article(one: TokenPage) -> str:
    chips = [f'<span class="chip">{escape(name)} <b>{_score(value)}</b></span>' for name, value in one.rewards.items()]
    if one.answer is not None:
        chips.insert(0, f'<span class="chip">answer <b>{escape(one.answer)}</b></span>')
    if one.gold is not None:
        chips.insert(0, f'<span class="chip">gold <b>{escape(one.gold)}</b></span>')
    strengths = {name: _strengths(values) for name, values in one.scores.items()}
    spans = "".join(_span(one, place, strengths) for place in range(len(one.tokens)))
    frames = "".join(
        f'<figure><img src="{attribute(frame.data)}" alt="frame at {attribute(frame.caption)}" loading="lazy">'
        f"<figcaption>{escape(frame.caption)}</figcaption></figure>"
        for frame in one.frames
    )
    strip = f'<div class="{"frames many" if len(one.frames) > 8 else "frames"}">{frames}</div>' if frames else ""
    note = f'<p class="note">{escape(one.note)}</p>' if one.note else ""
    return (
        f'<article class="example"><header><h3>{escape(one.heading)}</h3><div class="chips">{"".join(chips)}</div>'
        f'</header>{note}<div class="sides">{strip}<div class="text">'
        f'<p class="label">Prompt</p><div class="prompt">{escape(one.prompt)}</div>'
        f'<p class="label">Completion <span>{len(one.tokens)} tokens</span></p>'
        f'<div class="tokens">{spans}</div></div></div></article>'
    )


def _span(one: TokenPage, place: int, strengths: Mapping[str, Sequence[float]]) -> str:
    chosen = [name for name in SIGNALS if name in one.selected and bool(one.selected[name][place])]
    tip = [repr(one.tokens[place])]
    for name in SIGNALS:
        if name in one.scores:
            tip.append(f"{name} {_score(one.scores[name][place])}" + (" (key)" if name in chosen else ""))
        elif name in chosen:
            tip.append(f"{name} (key)")
    if one.weights is not None:
        tip.append(f"weight {_score(one.weights[place])}")
    levels = ";".join(f"--{name[0]}:{values[place]:.2f}" for name, values in strengths.items() if values[place] > 0)
    style = f' style="{levels}"' if levels else ""
    classes = " ".join(["tok", *(f"k-{name[0]}" for name in chosen)])
    return (
        f'<span class="{classes}"{style} data-tip="{attribute("  ·  ".join(tip))}">{_shown(one.tokens[place])}</span>'
    )


def _shown(token: str) -> str:
    """Token text with visible line ends; the break itself follows the mark."""
    return escape(token).replace("\n", '<i class="nl">↵</i>\n')


def _score(value: float | None) -> str:
    number = _clean(value)
    return "none" if number is None else f"{number:.3g}"


def _clean(value: float | None) -> float | None:
    if value is None or not math.isfinite(number := float(value)):
        return None
    return number


def _strengths(values: Sequence[float | None]) -> list[float]:
    """Scores as shares in [0, 1] of their 95th percentile; 0 for missing and negative ones."""
    numbers = [max(_clean(value) or 0.0, 0.0) for value in values]
    positive = [number for number in numbers if number > 0]
    if not positive:
        return [0.0] * len(numbers)
    top = float(np.quantile(positive, 0.95))
    return [min(number / top, 1.0) for number in numbers]


def _byte_of_character() -> dict[str, int]:
    """The byte behind each character of a byte-level vocabulary (GPT-2's scheme: printable bytes stand for themselves,
    the others follow from U+0100 on, in order)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_of_character()


def _readable(piece: str) -> str:
    if any(character not in _BYTES for character in piece):
        return piece
    return bytes(_BYTES[character] for character in piece).decode("utf-8", "backslashreplace")
