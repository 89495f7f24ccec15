"""Prompt templates: the text of the user's message and the supervised reply, from files under `conf/prompts`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ktr.data.rows import REASONING, TASKS, Row

PROMPT_FOLDER = Path(__file__).resolve().parents[2] / "conf" / "prompts"
DEFAULT = "default"
_PLACEHOLDER = re.compile(r"\{(question|options|instruction|duration|rationale|answer)\}")
_TEXT_PLACES = ("question", "options", "instruction", "duration")
_TARGET_PLACES = ("rationale", "answer")
_KEYS = ("text", "options", "instructions", "reply")


@dataclass(frozen=True)
class PromptTemplate:
    """Wording of a prompt. Only the listed placeholders are filled, so braces in questions and answers are safe.

    Args:
        name: for records.
        text: the user's message, with `{question}`, `{options}`, `{instruction}`, `{duration}`.
        options: what `{options}` becomes for a row that has some, with `{options}` for the lines, one an option.
        instructions: what `{instruction}` becomes by problem type; `default` is for types not listed.
        reply: the supervised reply, with `{rationale}` and `{answer}`.
        tasks: other wordings for rows of other tasks than `reasoning` (see `ktr.data.rows.TASKS`).
    """

    name: str
    text: str
    options: str = "\n{options}"
    instructions: dict[str, str] = field(default_factory=dict)
    reply: str = "<think>{rationale}</think><answer>{answer}</answer>"
    tasks: dict[str, PromptTemplate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for where, text, places in (("text", self.text, _TEXT_PLACES), ("reply", self.reply, _TARGET_PLACES)):
            unknown = set(re.findall(r"\{([a-z_]+)\}", text)) - set(places)
            if unknown:
                raise ValueError(
                    f"prompt {self.name!r}: {where} has the unknown placeholder {sorted(unknown)[0]!r}; "
                    f"known: {', '.join(places)}"
                )
        if "{question}" not in self.text:
            raise ValueError(f"prompt {self.name!r}: text lacks {{question}}")
        if "{answer}" not in self.reply:
            raise ValueError(f"prompt {self.name!r}: reply lacks {{answer}}")

    @staticmethod
    def load(name_or_path: str | Path) -> PromptTemplate:
        """The template of a file, or of a name under `conf/prompts` (`think`, `direct`, `rewatch`, `toy`).

        Raises:
            ValueError: when there is no such file, or its content is not a template.
        """
        path = Path(name_or_path)
        if path.suffix not in (".yaml", ".yml"):
            path = PROMPT_FOLDER / f"{name_or_path}.yaml"
        if not path.is_file():
            names = ", ".join(sorted(file.stem for file in PROMPT_FOLDER.glob("*.yaml")))
            raise ValueError(f"no prompt {str(name_or_path)!r}; give a .yaml file or one of {names}")
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: not valid YAML: {error}") from error
        return PromptTemplate(name=path.stem, **_fields(content, path))

    def render(self, row: Row, duration: float | None = None) -> str:
        """The user's message for a row. `duration` (s), of the decoded video, goes before the one the data state.

        Raises:
            ValueError: when the template states the duration and none is known.
        """
        if row.task in self.tasks:
            return self.tasks[row.task].render(row, duration)
        values = {
            "question": row.question.strip(),
            "options": self._options(row),
            "instruction": self.instructions.get(row.problem_type, self.instructions.get(DEFAULT, "")),
        }
        if "{duration}" in self.text:
            seconds = duration if duration is not None else row.duration
            if seconds is None:
                raise ValueError(f"row {row.id!r}: prompt {self.name!r} states the duration, which is not known")
            values["duration"] = f"{clock(0, seconds)}-{clock(seconds, seconds)}"
        return _fill(self.text, values).strip()

    def target(self, row: Row) -> str:
        """The reply that supervised training teaches for a row.

        Raises:
            ValueError: the reply holds a rationale, and the row has none; or this prompt does not word the row's task.
        """
        if row.task in self.tasks:
            return self.tasks[row.task].target(row)
        if row.task != REASONING and "{rationale}" in self.reply:
            raise ValueError(
                f"row {row.id!r}: prompt {self.name!r} has no wording for the task {row.task!r}; it has "
                f"{', '.join([REASONING, *self.tasks])}: add it under `tasks`, or take it out of data.sft_tasks"
            )
        if "{rationale}" in self.reply and row.rationale is None:
            raise ValueError(
                f"row {row.id!r} has no rationale, which the reply of prompt {self.name!r} holds; "
                "use rows with one, or the prompt 'direct'"
            )
        return _fill(self.reply, {"rationale": row.rationale or "", "answer": row.answer})

    def wants_rationale(self, row: Row) -> bool:
        """Whether the supervised reply to a row holds its reasoning."""
        return "{rationale}" in self.tasks.get(row.task, self).reply

    def _options(self, row: Row) -> str:
        return _fill(self.options, {"options": "\n".join(row.options)}) if row.options else ""


def clock(seconds: float, longest: float) -> str:
    """`MM:SS`, or `HH:MM:SS` when `longest` (s) is an hour or more."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if round(longest) < 3600:
        return f"{minutes:02d}:{rest:02d}"
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"


def _fill(text: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match.group(1), match.group(0)), text)


def _fields(content: Any, path: Path, known: tuple[str, ...] = (*_KEYS, "tasks")) -> dict[str, Any]:
    if not isinstance(content, dict) or "text" not in content:
        raise ValueError(f"{path}: a prompt file is a mapping with at least `text`")
    unknown = set(content) - set(known)
    if unknown:
        raise ValueError(f"{path}: unknown key {sorted(unknown)[0]!r}; known: {', '.join(sorted(known))}")
    for key, value in content.items():
        wanted = dict if key in ("instructions", "tasks") else str
        if not isinstance(value, wanted):
            raise ValueError(f"{path}: {key!r} must be {'a mapping' if wanted is dict else 'text'}")
    return {**content, "tasks": _tasks(content, path)}


def _tasks(content: dict[str, Any], path: Path) -> dict[str, PromptTemplate]:
    """The wordings of other tasks, each a prompt of its own; options and instructions are the file's unless given."""
    known = [task for task in TASKS if task != REASONING]
    shared = {key: content[key] for key in ("options", "instructions") if key in content}
    tasks = {}
    for task, wording in content.get("tasks", {}).items():
        if task not in known:
            raise ValueError(f"{path}: unknown task {task!r}; known: {', '.join(known)}")
        fields = _fields(wording, path, _KEYS)
        tasks[task] = PromptTemplate(name=f"{path.stem}, {task}", **(shared | fields))
    return tasks


load_template = PromptTemplate.load
