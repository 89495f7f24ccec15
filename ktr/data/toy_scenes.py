"""The toy world's scenes, questions and rationales, as pure data and pure functions of it.

A scene is four pictures of coloured shapes in an order. From it follow its facts, the answer and the rationale of each
question, and for every word of a rationale whether it rests on the video and on the order of its frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from random import Random

COLORS = {
    "red": (230, 30, 30),
    "green": (30, 200, 30),
    "blue": (40, 60, 240),
    "yellow": (235, 225, 30),
    "pink": (240, 80, 220),
    "white": (245, 245, 245),
}
"""Names of the colours with their RGB values."""
SHAPES = {"block": (24, 24), "beam": (28, 12), "pole": (12, 28)}
"""Names of the shapes with their width and height in pixels."""
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
"""Names of the directions with their steps along x and y; y grows downwards."""
OPPOSITE = {"left": "right", "right": "left", "up": "down", "down": "up"}
COUNTS = ("one", "two", "three", "four")
NUM_STATES = 4
FRAME_SIZE = 56
MAX_BACKGROUND = 20
QUARTER_GREYS = (0, 35, 70, 105)
"""Levels (0 to 255) of the upper left, upper right, lower left and lower right quarter: landmarks for what moves."""


@dataclass(frozen=True, order=True)
class Blob:
    """One shape in one picture; ``x`` and ``y`` are its left and top edge in pixels."""

    color: str
    shape: str
    x: int
    y: int


State = tuple[Blob, ...]


@dataclass(frozen=True)
class Scene:
    """Four pictures in their order. Each quarter of the frame has its own grey; ``background`` is added to them all."""

    states: tuple[State, ...]
    background: int

    def reordered(self, order: tuple[int, ...]) -> Scene:
        """The same pictures in another order."""
        return Scene(tuple(self.states[index] for index in order), self.background)


@dataclass(frozen=True)
class Facts:
    """What can be said of a scene: its shapes, and either where they move or how their colour changes.

    ``direction`` is set for a scene that moves, ``last_color`` for one whose colour changes once.
    """

    shape: str
    color: str
    count: int
    direction: str | None = None
    last_color: str | None = None


@dataclass(frozen=True)
class Question:
    """A question of one ``kind``; ``about`` are the words that it names: a direction, or two colours."""

    kind: str
    about: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return KINDS[self.kind].wording.format(*self.about)


@dataclass(frozen=True)
class Kind:
    """A kind of question.

    Args:
        moving: asked about scenes that move, else about scenes whose colour changes.
        wording: the question, with a place for each word it names.
        problem_type: how the answer is scored.
        temporal: not to be answered without the order of the frames.
        order_blind: accuracy of the best answer from shuffled frames. A static kind loses nothing by shuffling.
    """

    moving: bool
    wording: str
    problem_type: str
    temporal: bool
    order_blind: float


KINDS = {
    "color": Kind(True, "what color is it?", "free-form", False, 1.0),
    "shape": Kind(False, "what shape is there?", "free-form", False, 1.0),
    "count": Kind(False, "how many are there?", "numerical", False, 1.0),
    "direction": Kind(True, "which way does it move?", "free-form", True, 0.5),
    "moved": Kind(True, "does it move {0}?", "yes/no", True, 0.5),
    "first": Kind(False, "which color came first?", "free-form", True, 0.5),
    "last": Kind(False, "which color came last?", "free-form", True, 0.5),
    "before": Kind(False, "did {0} come before {1}?", "yes/no", True, 0.5),
}


def _vocabulary() -> tuple[str, ...]:
    words = ["it", "is", "moves", "a", "there", "are", "then", "yes", "no", ".", "?", *COLORS, *SHAPES, *DIRECTIONS]
    words += [*COUNTS, *(str(number) for number in range(1, len(COUNTS) + 1))]
    for kind in KINDS.values():
        words += kind.wording.replace("?", "").replace("{0}", "").replace("{1}", "").split()
    return tuple(dict.fromkeys(words))


VOCABULARY = _vocabulary()
"""Every word that a question, a rationale or an answer may hold."""


def sample_scene(rng: Random) -> Scene:
    """A random scene: half of them move one shape across the frame, half change the colour of one to four."""
    background = rng.randint(0, MAX_BACKGROUND)
    shape = rng.choice(list(SHAPES))
    if rng.random() < 0.5:
        lane = abs(rng.choice((0.0, 1.0)) - rng.uniform(0.0, 0.25))
        return moving_scene(shape, rng.choice(list(COLORS)), rng.choice(list(DIRECTIONS)), lane, background)
    first, last = rng.sample(list(COLORS), 2)
    cells = tuple(sorted(rng.sample(range(4), rng.randint(1, 4))))
    return changing_scene(shape, first, last, cells, (rng.randint(-2, 2), rng.randint(-2, 2)), background)


def moving_scene(shape: str, color: str, direction: str, lane: float, background: int = 0) -> Scene:
    """One shape that crosses the frame; ``lane`` (0 to 1) is its place across the direction."""
    width, height = SHAPES[shape]
    step_x, step_y = DIRECTIONS[direction]
    states = []
    for index in range(NUM_STATES):
        along = index / (NUM_STATES - 1) if step_x + step_y > 0 else 1 - index / (NUM_STATES - 1)
        place_x, place_y = (along, lane) if step_x else (lane, along)
        x, y = round(place_x * (FRAME_SIZE - width)), round(place_y * (FRAME_SIZE - height))
        states.append((Blob(color, shape, x, y),))
    return Scene(tuple(states), background)


def changing_scene(
    shape: str, first: str, last: str, cells: tuple[int, ...], shift: tuple[int, int] = (0, 0), background: int = 0
) -> Scene:
    """Shapes in some of the frame's four quarters that change from one colour to another halfway."""
    width, height = SHAPES[shape]
    half = FRAME_SIZE // 2
    states = []
    for index in range(NUM_STATES):
        color = first if index < NUM_STATES // 2 else last
        blobs = []
        for cell in cells:
            x = half * (cell % 2) + (half - width) // 2 + shift[0]
            y = half * (cell // 2) + (half - height) // 2 + shift[1]
            blobs.append(Blob(color, shape, min(max(x, 0), FRAME_SIZE - width), min(max(y, 0), FRAME_SIZE - height)))
        states.append(tuple(blobs))
    return Scene(tuple(states), background)


def read_facts(scene: Scene) -> Facts | None:
    """The facts of a scene, or None where its pictures stand in an order that no rationale describes."""
    blob = scene.states[0][0]
    colors = [state[0].color for state in scene.states]
    half = NUM_STATES // 2
    if len(set(colors)) == 2:
        if len(set(colors[:half])) > 1 or len(set(colors[half:])) > 1:
            return None
        return Facts(blob.shape, colors[0], len(scene.states[0]), last_color=colors[-1])
    for name, (step_x, step_y) in DIRECTIONS.items():
        places = [state[0].x * step_x + state[0].y * step_y for state in scene.states]
        if all(before < after for before, after in zip(places, places[1:], strict=False)):
            return Facts(blob.shape, blob.color, len(scene.states[0]), direction=name)
    return None


def all_facts(moving: bool) -> Iterator[Facts]:
    """Every combination of facts that a scene of this sort can have."""
    if moving:
        for shape, color, direction in product(SHAPES, COLORS, DIRECTIONS):
            yield Facts(shape, color, 1, direction=direction)
        return
    for shape, (first, last), count in product(SHAPES, permutations(COLORS, 2), range(1, len(COUNTS) + 1)):
        yield Facts(shape, first, count, last_color=last)


def sample_questions(scene: Scene, count: int, rng: Random) -> list[Question]:
    """``count`` questions of different kinds about a scene; what they name is right half of the time.

    Raises:
        ValueError: ``count`` is larger than the number of kinds that suit a scene.
    """
    facts = read_facts(scene)
    assert facts is not None, "a sampled scene is in an order that can be described"
    suitable = [name for name, kind in KINDS.items() if kind.moving == (facts.direction is not None)]
    if count > len(suitable):
        raise ValueError(f"{count} questions a clip are asked for, but only {len(suitable)} kinds suit every clip")
    return [Question(name, _named(name, facts, rng)) for name in rng.sample(suitable, count)]


def _named(kind: str, facts: Facts, rng: Random) -> tuple[str, ...]:
    truthful = rng.random() < 0.5
    if kind == "moved" and facts.direction:
        return (facts.direction if truthful else OPPOSITE[facts.direction],)
    if kind == "before" and facts.last_color:
        return (facts.color, facts.last_color) if truthful else (facts.last_color, facts.color)
    return ()


def suits(question: Question, facts: Facts) -> bool:
    """Whether the question can be asked about a scene with these facts."""
    if KINDS[question.kind].moving != (facts.direction is not None):
        return False
    if question.kind == "moved":
        return facts.direction in (question.about[0], OPPOSITE[question.about[0]])
    return question.kind != "before" or {facts.color, facts.last_color} == set(question.about)


def rationale_words(question: Question, facts: Facts) -> tuple[str, ...]:
    """The rationale's words and its full stop."""
    match question.kind:
        case "color":
            return ("it", "is", facts.color, ".")
        case "shape":
            return ("there", "is", "a", facts.shape, ".")
        case "count":
            return ("there", "are", COUNTS[facts.count - 1], ".")
        case "direction" | "moved":
            return ("it", "moves", str(facts.direction), ".")
        case _:
            return (facts.color, "then", str(facts.last_color), ".")


def answer_word(question: Question, facts: Facts) -> str:
    """The gold answer, always one word."""
    match question.kind:
        case "color" | "first":
            return facts.color
        case "shape":
            return facts.shape
        case "count":
            return str(facts.count)
        case "direction":
            return str(facts.direction)
        case "last":
            return str(facts.last_color)
        case "moved":
            return "yes" if facts.direction == question.about[0] else "no"
        case _:
            return "yes" if facts.color == question.about[0] else "no"


def reference_words(question: Question, facts: Facts) -> tuple[str, ...]:
    """The words of the rationale, then the answer."""
    return (*rationale_words(question, facts), answer_word(question, facts))


def join_words(words: tuple[str, ...]) -> str:
    """Words as text: a space between them, none before a full stop."""
    return " ".join(words).replace(" .", ".")


def rationale(scene: Scene, question: Question) -> str:
    """The reasoning that answers ``question`` about ``scene``."""
    facts = read_facts(scene)
    assert facts is not None, "the pictures are in an order that can be described"
    return join_words(rationale_words(question, facts))


def events(scene: Scene) -> list[tuple[float, float, str]]:
    """What happens in a scene: start and end as shares of its duration, and a sentence in the toy world's words."""
    facts = read_facts(scene)
    assert facts is not None, "the pictures are in an order that can be described"
    number = "is a" if facts.count == 1 else f"are {COUNTS[facts.count - 1]}"
    if facts.direction is not None:
        return [(0.0, 1.0, f"there {number} {facts.color} {facts.shape}. it moves {facts.direction}.")]
    colors = (facts.color, str(facts.last_color))
    return [(i / 2, (i + 1) / 2, f"there {number} {color} {facts.shape}.") for i, color in enumerate(colors)]


@dataclass(frozen=True)
class WordTruth:
    """For each word of a reference (rationale, full stop, answer), what it rests on.

    ``visual``: given the words before it, another clip to which the question can be put has another word there.
    ``temporal``: given the words before it, another order of the same clip's frames has another word there.
    """

    words: tuple[str, ...]
    visual: tuple[bool, ...]
    temporal: tuple[bool, ...]


def word_truth(scene: Scene, question: Question) -> WordTruth:
    """What each word of the reference answer to ``question`` about ``scene`` rests on."""
    facts = read_facts(scene)
    assert facts is not None, "the pictures are in an order that can be described"
    words = reference_words(question, facts)
    other_orders = (read_facts(scene.reordered(order)) for order in permutations(range(NUM_STATES)))
    reordered = {reference_words(question, other) for other in set(other_orders) if other is not None}
    return WordTruth(words, _varies(words, _possible_references(question)), _varies(words, frozenset(reordered)))


@cache
def _possible_references(question: Question) -> frozenset[tuple[str, ...]]:
    possible = (facts for facts in all_facts(KINDS[question.kind].moving) if suits(question, facts))
    return frozenset(reference_words(question, facts) for facts in possible)


def _varies(words: tuple[str, ...], others: frozenset[tuple[str, ...]]) -> tuple[bool, ...]:
    """For each word: does one of the others agree up to it and differ at it?"""
    return tuple(
        any(other[:index] == words[:index] and other[index] != words[index] for other in others)
        for index in range(len(words))
    )
