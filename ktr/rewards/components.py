"""Reward components in TRL's form: `f(prompts, completions, **columns) -> list[float | None]`, None abstaining.

`completions` are texts or TRL's conversations (the last message counts); every column is a list aligned with them.
Components give plain scores; weights belong to whoever sums them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ktr.rewards.reply import format_score
from ktr.rewards.scoring import METRICS, POLICIES, score_reply
from ktr.rewards.verdict import Verdict
from ktr.rewards.video_r1 import video_r1_format

if TYPE_CHECKING:
    from ktr.rewards.judges import Judge

Completion = str | Sequence[dict[str, Any]]


def completion_text(completion: Completion) -> str:
    """The text of a completion given as a string or as a conversation."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


class AccuracyReward:
    """Accuracy of each reply by its own row's problem type, in [0, 1].

    Replies that only a judge can decide go to `judge` together; without one, or when it fails, they abstain.
    Raises ValueError for an unknown policy or metric, and for a row whose gold answer cannot be read.
    """

    rowwise = True

    def __init__(
        self,
        policy: str = "default",
        metric: str | None = None,
        require_tags: bool = True,
        judge: Judge | None = None,
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"unknown reward policy {policy!r}; known: {', '.join(POLICIES)}")
        if metric is not None and metric not in METRICS:
            raise ValueError(f"unknown metric {metric!r}; known: {', '.join(METRICS)}")
        self.policy = policy
        self.metric = metric
        self.require_tags = require_tags
        self.judge = judge

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Completion],
        problem_type: Sequence[str],
        answer: Sequence[str],
        options: Sequence[Sequence[str] | None] | None = None,
        question: Sequence[str] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        verdicts = self.verdicts(completions, problem_type, answer, options, question)
        return [verdict.accuracy for verdict in verdicts]

    def verdicts(
        self,
        completions: Sequence[Completion],
        problem_type: Sequence[str],
        answer: Sequence[str],
        options: Sequence[Sequence[str] | None] | None = None,
        question: Sequence[str] | None = None,
    ) -> list[Verdict]:
        """The whole verdicts; `detail` is "judge" where a judge decided."""
        verdicts = [
            score_reply(
                completion_text(completion),
                problem_type=problem_type[i],
                gold=answer[i],
                options=(options[i] if options is not None else None) or (),
                policy=self.policy,
                metric=self.metric,
                require_tags=self.require_tags,
            )
            for i, completion in enumerate(completions)
        ]
        if self.judge is None:
            return verdicts
        open_rows = [i for i, verdict in enumerate(verdicts) if verdict.status == "abstained"]
        opinions = self.judge.same_answer(
            [(question[i] if question is not None else "", answer[i], verdicts[i].parsed or "") for i in open_rows]
        )
        for i, opinion in zip(open_rows, opinions, strict=True):
            if opinion is not None:
                verdicts[i] = Verdict(float(opinion), verdicts[i].format, "ok", verdicts[i].parsed, "judge")
        return verdicts


class FormatReward:
    """1.0 for a reply that is one think block and one answer block, neither empty, else 0.0.

    With `policy="video_r1"` the release's looser rule, on the reply as it is.
    """

    rowwise = True

    def __init__(self, policy: str = "default") -> None:
        if policy not in POLICIES:
            raise ValueError(f"unknown reward policy {policy!r}; known: {', '.join(POLICIES)}")
        self.policy = policy

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        form = format_score if self.policy == "default" else video_r1_format
        return [form(completion_text(completion)) for completion in completions]
