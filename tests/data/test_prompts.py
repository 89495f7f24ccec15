import pytest

from ktr.data.prompts import PROMPT_FOLDER, PromptTemplate, clock, load_template
from ktr.data.rows import Media, Row

NAMES = ("think", "direct", "rewatch", "toy")
X = Media("video", "x.mp4")
OPTIONS = ("A. red", "B. {answer}")
CHOICE = Row("1", "Which {colour}?", X, "multiple choice", OPTIONS, "B", "It is {red}.", 972.0)
NUMBER = Row("2", "How many?", X, "numerical", (), "6", "Six balls.", 3700.0)


@pytest.mark.parametrize("name", NAMES)
def test_question_and_options_stand_in_every_prompt(name):
    text = load_template(name).render(CHOICE)
    assert "Which {colour}?" in text
    assert "\nA. red\nB. {answer}" in text
    assert text == text.strip()


def test_every_prompt_file_loads():
    assert {file.stem for file in PROMPT_FOLDER.glob("*.yaml")} >= set(NAMES)
    for file in PROMPT_FOLDER.glob("*.yaml"):
        assert load_template(file).render(NUMBER)


def test_instruction_follows_the_problem_type():
    think = load_template("think")
    assert "letter" in think.render(CHOICE) and "number" not in think.render(CHOICE)
    assert "number" in think.render(NUMBER) and "letter" not in think.render(NUMBER)
    assert "<think>" in think.render(NUMBER) and "Options" not in think.render(NUMBER)


def test_toy_prompt_is_only_the_question():
    assert load_template("toy").render(CHOICE) == "Which {colour}?\nA. red\nB. {answer}"
    assert load_template("toy").render(NUMBER) == "How many?"


def test_targets():
    assert load_template("think").target(CHOICE) == "<think>It is {red}.</think><answer>B</answer>"
    assert load_template("direct").target(CHOICE) == "<answer>B</answer>"
    bare = Row("3", "How many?", None, "numerical", (), "6")
    with pytest.raises(ValueError, match="row '3' has no rationale"):
        load_template("think").target(bare)


def test_rewatch_states_the_duration():
    rewatch = load_template("rewatch")
    assert "00:00-16:12" in rewatch.render(CHOICE)
    assert "00:00:00-01:01:40" in rewatch.render(NUMBER)
    assert "00:00-00:22" in rewatch.render(NUMBER, duration=22.03)
    with pytest.raises(ValueError, match="row '3'.*duration"):
        rewatch.render(Row("3", "How many?", None, "numerical", (), "6"))


def test_clock():
    assert clock(59.6, 100) == "01:00"
    assert clock(3600, 3600) == "01:00:00"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text: 'no place'", "question"),
        ("text: '{question} {colour}'", "colour"),
        ("text: '{question}'\nsuffix: x", "suffix"),
        ("text: 5", "text"),
        ("- a", "mapping"),
        ("text: [", "YAML"),
        ("text: '{question}'\nreply: 'x'", "answer"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, content, message):
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        PromptTemplate.load(file)
    assert "mine" in str(caught.value)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match="direct, rewatch, think, toy"):
        load_template("thnik")
