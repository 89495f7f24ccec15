"""Conversations in LLaVA's form: turns of a person and a model about one video or image.

`conversations` holds `{"from": "human", "value": ...}` and `{"from": "gpt", "value": ...}`; the spelling `messages`
with `role` and `content` is read too. Every question with its answer becomes a row of its own, about the same media:
the turns before it are not part of its prompt, as such data sets ask their questions independently of each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ktr.data.fields import Fields, problem_type_of, untagged_answer
from ktr.data.rows import MULTIPLE_CHOICE, Media, Row, RowError, label_options

_MEDIA_TAG = re.compile(r"\s*<(?:video|image)>\s*")
_PERSON, _MODEL = ("human", "user"), ("gpt", "assistant")


def conversations(fields: Fields) -> list[Row]:
    """The rows of one conversation: ids get the number of the turn where there are several."""
    pairs = _pairs(fields)
    identity = fields.identity("id", "problem_id")
    media = _media(fields)
    options = fields.texts("options")
    declared = fields.optional("problem_type") or (MULTIPLE_CHOICE if options else "free-form")
    problem_type = problem_type_of(declared)
    if problem_type == MULTIPLE_CHOICE:
        options = label_options(options)
    return [
        Row(
            id=identity if len(pairs) == 1 else f"{identity}-{number}",
            question=_MEDIA_TAG.sub("\n", question).strip(),
            media=media,
            problem_type=problem_type,
            options=options,
            answer=untagged_answer(answer),
            duration=fields.number("duration"),
            source=fields.optional("data_source", "source") or "",
            category=fields.optional("category") or declared,
        )
        for number, (question, answer) in enumerate(pairs)
    ]


def _pairs(fields: Fields) -> list[tuple[str, str]]:
    name = "messages" if "messages" in fields.data else "conversations"
    turns = fields.data.get(name)
    if not isinstance(turns, list | tuple) or not turns:
        raise RowError("a list of turns is wanted", field=name)
    spoken = [_turn(turn, name) for turn in turns]
    if spoken[0][0] == "system":
        spoken = spoken[1:]
    people = [who for who, _ in spoken]
    if len(spoken) < 2 or people != ["person", "model"] * (len(spoken) // 2):
        raise RowError(f"questions and answers must take turns, not {', '.join(people) or 'nothing'}", field=name)
    texts = [text for _, text in spoken]
    return list(zip(texts[::2], texts[1::2], strict=True))


def _turn(turn: Any, name: str) -> tuple[str, str]:
    if not isinstance(turn, Mapping):
        raise RowError("a turn is an object with from and value", field=name)
    part = Fields(turn, "")
    who, text = part.text("from", "role"), part.text("value", "content")
    for kind, known in (("person", _PERSON), ("model", _MODEL), ("system", ("system",))):
        if who in known:
            return kind, text
    raise RowError(f"{who!r} is none of {', '.join(_PERSON + _MODEL)}, system", field=name)


def _media(fields: Fields) -> Media | None:
    given = [kind for kind in ("video", "image") if fields.data.get(kind)]
    if len(given) == 2:
        raise RowError("a row has a video or an image, not both", field="image")
    if not given:
        return None
    value = fields.data[given[0]]
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise RowError(f"{len(value)} files are given and a row shows one", field=given[0])
        value = value[0]
    return Media(given[0], Fields({given[0]: value}, "").text(given[0]), fields.number("start"), fields.number("end"))
