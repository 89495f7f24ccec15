"""Counterfactual views of a prompt: which ones exist, and how its frames are shuffled. Imports no torch.

A view changes what the model sees and nothing else: the completion and all position ids stay.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence

from ktr.attribution.settings import GRANULARITIES, SIGNALS


def available_signals(modality: str, num_grids: int, wanted: Sequence[str] = SIGNALS) -> tuple[str, ...]:
    """Those of the wanted signals that a prompt can have, in the order of ``SIGNALS``.

    Text has no visual score, and only a video of two or more temporal patches has an order to lose.

    Args:
        modality: ``text``, ``image`` or ``video``.
        num_grids: temporal patches of the prompt's media (an image has 1, text 0).
        wanted: names among ``SIGNALS``.
    """
    if modality not in ("text", "image", "video"):
        raise ValueError(f"modality must be text, image or video; got {modality!r}")
    available = {"entropy"}
    if modality != "text":
        available.add("visual")
    if modality == "video" and num_grids >= 2:
        available.add("temporal")
    return tuple(signal for signal in SIGNALS if signal in wanted and signal in available)


def shuffle_seed(run_seed: int, step: int, prompt_id: str) -> int:
    """Seed of a prompt's shuffles: the same in every process and on every machine, another at every step.

    (Python's own ``hash`` of a string differs from one process to the next.)
    """
    key = f"{run_seed}\x1f{step}\x1f{prompt_id}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


def permutations(num_grids: int, count: int, seed: int) -> list[list[int]]:
    """Distinct random orders of ``0 .. num_grids - 1``, never the identity.

    Returns `count` orders, or all ``num_grids! - 1`` where there are fewer, so none when `num_grids` is below 2.
    The same arguments give the same orders, and the first orders of a larger `count` are those of a smaller one.
    """
    if count < 1:
        raise ValueError(f"permutations must be at least 1; got {count}")
    if num_grids < 2:
        return []
    # 13! is beyond any count; the factorial of a long video is a number of thousands of digits
    count = min(count, math.factorial(min(num_grids, 13)) - 1)
    rng = random.Random(seed)
    identity = tuple(range(num_grids))
    orders: dict[tuple[int, ...], None] = {}
    while len(orders) < count:
        order = tuple(rng.sample(identity, num_grids))
        if order != identity:
            orders[order] = None
    return [list(order) for order in orders]


def shuffled_orders(
    num_grids: int, count: int, seed: int, *, granularity: str, frames_per_grid: int = 2
) -> list[list[int]]:
    """Orders of a video's FRAMES for its shuffled views; none for a video of one temporal patch.

    ``frame``: frames move one by one and are encoded again (Video-KTR's paper). ``patch``: whole temporal patches of
    `frames_per_grid` frames change places, so permuting the encoded patches by `permutations` of the same arguments
    gives the same features.

    Args:
        num_grids: temporal patches of the video.
        count: orders wanted.
        seed: see `shuffle_seed`.
        granularity: ``frame`` or ``patch``.
        frames_per_grid: frames in a temporal patch.

    Returns:
        At most `count` lists of ``num_grids * frames_per_grid`` indices; entry i is the old place of new frame i.
    """
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity must be one of {', '.join(GRANULARITIES)}; got {granularity!r}")
    if num_grids < 2:
        return []
    if granularity == "frame":
        return permutations(num_grids * frames_per_grid, count, seed)
    return [frames_of_grids(order, frames_per_grid) for order in permutations(num_grids, count, seed)]


def frames_of_grids(order: Sequence[int], frames_per_grid: int = 2) -> list[int]:
    """Frame indices of temporal patches in the given order: ``[1, 0]`` becomes ``[2, 3, 0, 1]``."""
    return [grid * frames_per_grid + frame for grid in order for frame in range(frames_per_grid)]
