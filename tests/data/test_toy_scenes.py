from __future__ import annotations

import re
from itertools import permutations, product
from random import Random

import pytest

from ktr.data.toy_scenes import (
    COLORS,
    DIRECTIONS,
    KINDS,
    NUM_STATES,
    SHAPES,
    VOCABULARY,
    Question,
    all_facts,
    answer_word,
    changing_scene,
    moving_scene,
    rationale,
    read_facts,
    reference_words,
    sample_questions,
    sample_scene,
    suits,
    word_truth,
)

ORDERS = list(permutations(range(NUM_STATES)))


def every_scene() -> list:
    """A scene for each combination of facts, built from pictures."""
    moving = [moving_scene(*facts, lane=0.2) for facts in product(SHAPES, COLORS, DIRECTIONS)]
    pairs = list(permutations(COLORS, 2))
    return moving + [
        changing_scene(shape, first, last, tuple(range(count)))
        for shape, (first, last), count in product(SHAPES, pairs, range(1, 5))
    ]


def asked(count: int, seed: int) -> list:
    rng = Random(seed)
    scenes = [sample_scene(rng) for _ in range(count)]
    return [(scene, question) for scene in scenes for question in sample_questions(scene, 3, rng)]


def test_facts_are_read_back_from_the_pictures():
    assert read_facts(moving_scene("beam", "pink", "up", 0.3)).direction == "up"
    facts = read_facts(changing_scene("pole", "red", "blue", (0, 3)))
    assert (facts.shape, facts.color, facts.last_color, facts.count) == ("pole", "red", "blue", 2)
    scenes = every_scene()
    found = [read_facts(scene) for scene in scenes]
    assert len(set(found)) == len(scenes)
    assert set(found) == {*all_facts(True), *all_facts(False)}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_backwards_is_the_opposite_way_and_any_other_order_is_none(direction):
    scene = moving_scene("block", "red", direction, 0.0)
    ways = {read_facts(scene.reordered(order)).direction for order in ORDERS if read_facts(scene.reordered(order))}
    assert len(ways) == 2 and direction in ways
    assert sum(read_facts(scene.reordered(order)) is not None for order in ORDERS) == 2


def test_rationales_and_answers():
    moving, changing = moving_scene("beam", "pink", "up", 0.3), changing_scene("pole", "red", "blue", (0, 3))
    expected = [
        (moving, Question("color"), "it is pink.", "pink"),
        (moving, Question("direction"), "it moves up.", "up"),
        (moving, Question("moved", ("up",)), "it moves up.", "yes"),
        (moving, Question("moved", ("down",)), "it moves up.", "no"),
        (changing, Question("shape"), "there is a pole.", "pole"),
        (changing, Question("count"), "there are two.", "2"),
        (changing, Question("first"), "red then blue.", "red"),
        (changing, Question("last"), "red then blue.", "blue"),
        (changing, Question("before", ("red", "blue")), "red then blue.", "yes"),
        (changing, Question("before", ("blue", "red")), "red then blue.", "no"),
    ]
    assert {question.kind for _, question, _, _ in expected} == set(KINDS)
    for scene, question, text, answer in expected:
        assert (rationale(scene, question), answer_word(question, read_facts(scene))) == (text, answer)


def test_everything_that_is_written_is_in_the_vocabulary():
    written = set()
    for scene, question in asked(300, seed=1):
        text = " ".join((question.text, *reference_words(question, read_facts(scene))))
        written |= set(re.findall(r"\w+|[^\w\s]", text))
    assert written == set(VOCABULARY)


def test_word_truth_agrees_with_trying_every_clip_and_every_order():
    scenes = every_scene()
    readings = [read_facts(scene) for scene in scenes]
    for scene, question in asked(40, seed=2):
        truth = word_truth(scene, question)
        orders = [read_facts(scene.reordered(order)) for order in ORDERS]
        other_clips = [reference_words(question, facts) for facts in readings if suits(question, facts)]
        other_orders = [reference_words(question, facts) for facts in orders if facts is not None]
        for index, word in enumerate(truth.words):
            before = truth.words[:index]
            for label, others in ((truth.visual, other_clips), (truth.temporal, other_orders)):
                changes = {other[index] for other in others if other[:index] == before} - {word}
                assert label[index] == bool(changes), (question.text, truth.words, index)


@pytest.mark.parametrize(
    ("kind", "visual", "temporal"),
    [
        ("color", "it is [pink] . pink", "it is pink . pink"),
        ("direction", "it moves [up] . up", "it moves [up] . up"),
        ("first", "[red] then [blue] . red", "[red] then blue . red"),
    ],
)
def test_word_truth_of_known_references(kind, visual, temporal):
    moving, changing = moving_scene("beam", "pink", "up", 0.3), changing_scene("pole", "red", "blue", (0, 3))
    truth = word_truth(moving if KINDS[kind].moving else changing, Question(kind))
    for marks, expected in ((truth.visual, visual), (truth.temporal, temporal)):
        marked = " ".join(f"[{word}]" if mark else word for word, mark in zip(truth.words, marks, strict=True))
        assert marked == expected


@pytest.mark.parametrize("kind", KINDS)
def test_order_blind_accuracy_is_the_best_answer_from_the_pictures_alone(kind):
    """Whoever sees the pictures unordered can only answer the same to all scenes with these pictures."""
    gold: dict[object, list[str]] = {}
    for scene in every_scene():
        facts = read_facts(scene)
        if KINDS[kind].moving != (facts.direction is not None):
            continue
        names = sorted({facts.color, facts.last_color}) if kind == "before" else [facts.direction]
        question = Question(kind, tuple(names) if kind in ("moved", "before") else ())
        for order in ORDERS:
            other = read_facts(scene.reordered(order))
            if other is not None and suits(question, other):
                pictures = (tuple(sorted(scene.states)), question)
                gold.setdefault(pictures, []).append(answer_word(question, other))
    best = sum(max(answers.count(answer) for answer in set(answers)) for answers in gold.values())
    assert best / sum(map(len, gold.values())) == pytest.approx(KINDS[kind].order_blind)
    assert KINDS[kind].temporal == (KINDS[kind].order_blind < 1)


def test_named_words_are_right_half_of_the_time():
    answers = [
        answer_word(question, read_facts(scene))
        for scene, question in asked(2000, seed=3)
        if KINDS[question.kind].problem_type == "yes/no"
    ]
    assert answers.count("yes") / len(answers) == pytest.approx(0.5, abs=0.05)


def test_too_many_questions_a_clip_are_refused():
    with pytest.raises(ValueError, match="9 questions a clip"):
        sample_questions(sample_scene(Random(0)), 9, Random(0))
