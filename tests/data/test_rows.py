import pytest

from ktr.data.rows import Media, Row, RowError, duplicate_ids, label_options, option_labels


def row(**changes) -> Row:
    values = dict(
        id="7",
        question="Which colour?",
        media=Media("video", "v/x.mp4"),
        problem_type="multiple choice",
        options=("A. red", "B. blue"),
        answer="B",
    )
    return Row(**(values | changes))


def test_modality_follows_the_media():
    assert row().modality == "video"
    assert row(media=Media("image", "x.png")).modality == "image"
    assert row(media=None).modality == "text"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": ""}, "id"),
        ({"question": "  "}, "question"),
        ({"problem_type": ""}, "problem_type"),
        ({"options": ()}, "options"),
        ({"options": ("red", "blue")}, "options"),
        ({"options": ("A. red", "A. blue")}, "options"),
        ({"answer": "C"}, "answer"),
        ({"answer": " "}, "answer"),
        ({"question": "see <|video_pad|>"}, "question"),
        ({"rationale": "done<|im_end|>"}, "rationale"),
        ({"duration": 0.0}, "duration"),
        ({"duration": float("nan")}, "duration"),
        ({"duration": 6.0, "media": Media("video", "x.mp4", start=20.0)}, "start"),
        ({"duration": 6.0, "media": Media("video", "x.mp4", end=8.0)}, "end"),
    ],
)
def test_a_row_that_cannot_be_asked_or_scored_is_refused(changes, field):
    with pytest.raises(RowError) as caught:
        row(**changes)
    assert caught.value.field == field
    if field != "id":
        assert "'7'" in str(caught.value)


@pytest.mark.parametrize(
    "bounds", [(4.0, 2.0), (-1.0, None), (None, -1.0), (2.0, 2.0), (float("nan"), None), (0.0, float("inf"))]
)
def test_impossible_bounds_are_refused(bounds):
    with pytest.raises(RowError):
        Media("video", "x.mp4", *bounds)


def test_bounds_may_touch_the_rounded_duration():
    assert row(duration=22.0, media=Media("video", "x.mp4", 3.0, 22.4)).media.end == 22.4


def test_option_letters():
    assert option_labels(("A. red", "B: blue", "(C) green", "D) grey")) == ["A", "B", "C", "D"]
    assert option_labels(("B. red", "A. blue")) == ["B", "A"]
    assert option_labels(("Apple", "Bear")) is None
    assert label_options(("red", "blue")) == ("A. red", "B. blue")
    assert label_options(("A: red", "B: blue")) == ("A: red", "B: blue")


def test_duplicate_ids():
    assert duplicate_ids([row(), row(id="8"), row()]) == {"7": 2}


def test_error_names_its_place():
    error = RowError("wrong", field="options").located(file="rows.json", line=3, index=1, row_id="7")
    assert str(error) == "rows.json, line 3, row 1, id '7', field 'options': wrong"
