"""The run's report: one self-contained page with results, training curves and coloured completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ktr.evaluation.metrics import Interval
from ktr.reporting.charts import Mark, Series, interval_track, line_chart, swatch
from ktr.reporting.files import write_atomic
from ktr.reporting.html import definitions, element, escape, page, table
from ktr.reporting.summary import STAGE_NAMES, STAGES, Summary, interval_of
from ktr.reporting.tokens import SIGNALS, TokenPage, token_sections

NBSP = "\u00a0"
SCALE = '<span class="scale"><i>0</i><i>50</i><i>100 %</i></span>'
SHAPES = {"base": "circle", "sft": "square", "rl": "diamond"}


@dataclass(frozen=True)
class Curve:
    """A chart over training steps: label -> (metric name or pattern, colour); `zero` starts the axis at 0."""

    title: str
    lines: Mapping[str, tuple[str, str]]
    zero: bool = False


def _one(title: str, pattern: str, *, color: str = "rl", zero: bool = False) -> Curve:
    return Curve(title, {title.lower(): (pattern, color)}, zero)


CURVES: Mapping[str, tuple[Curve, ...]] = {
    "sft": (
        _one("Loss", "loss", color="sft", zero=True),
        _one("Token accuracy", "mean_token_accuracy", color="sft"),
        _one("Learning rate", "learning_rate", color="sft", zero=True),
    ),
    "rl": (
        Curve("Reward", {"mean": ("reward", "rl"), "spread in group": ("reward_std", "base")}, True),
        Curve(
            "Rewards by part",
            {"accuracy": ("rewards/*accuracy*/mean", "rl"), "format": ("rewards/*format*/mean", "sft")},
        ),
        Curve(
            "Kept-token share",
            {
                "union": ("key_tokens/kept/union", "base"),
                "entropy": ("key_tokens/kept/entropy", "entropy"),
                "visual": ("key_tokens/kept/visual", "visual"),
                "temporal": ("key_tokens/kept/temporal", "temporal"),
            },
            True,
        ),
        _one("KL to the reference", "kl", zero=True),
        _one("Entropy", "entropy", zero=True),
        _one("Loss", "loss"),
        _one("Completion length", "completions/mean_length", zero=True),
        Curve("Share of groups without spread", {"share": ("groups/zero_variance", "rl")}, True),
        _one("Gradient norm", "grad_norm", zero=True),
    ),
}  # fmt: skip
STAGE_TITLES = {"sft": "Supervised fine-tuning", "rl": "Reinforcement learning"}


@dataclass(frozen=True)
class KindRow:
    """One question kind: rows, accuracy per stage, and the best accuracy without frame order where it is known."""

    kind: str
    rows: int | None
    scores: Mapping[str, Interval | None]
    order_blind: float | None = None


def write_report(
    path: str | Path,
    *,
    title: str,
    summary: Summary,
    curves: Sequence[Mapping[str, Any]] = (),
    kind_table: Sequence[KindRow] | None = None,
    examples: Sequence[TokenPage] = (),
    config_text: str = "",
    versions: Mapping[str, Any] | None = None,
) -> Path:
    """Write the report; sections without content are left out.

    Args:
        path: the HTML file, replaced at once.
        summary: as `build_summary` gives it.
        curves: rows of `metrics.jsonl`, each with `stage` and `step`.
        kind_table: rows of the accuracy-per-kind table; by default those of the summary.
        examples: completions to show with coloured tokens.
        config_text: the resolved configuration.
        versions: what the run was made with; nested mappings are flattened.
    """
    kinds = kind_rows(summary) if kind_table is None else kind_table
    mixed = kind_rows(summary, "by_kind_shuffled")
    sections = [
        _header(title, summary),
        _section("Accuracy", _headline(summary), "Held-out rows, the same decoding for every model. Unreadable, "
                 "cut-off and missing answers count as wrong. Intervals: 95 %, bootstrap over rows."),
        _section("Accuracy per question kind", _kinds(kinds), _kinds_note(kinds)),
        _section("Accuracy with the frames shuffled", _kinds(mixed),
                 "The same questions, each clip's frames in another order. " + _kinds_note(mixed)),
        _section("Attribution against ground truth", _attribution(summary["attribution"]),
                 "How well each signal's score tells the tokens that truly depend on the picture, or on its order, "
                 "from those that do not: area under the ROC curve, where 0.5 is chance."),
        *(_section(STAGE_TITLES.get(stage, stage), _curves(curves, stage),
                   "Thin: logged values; thick: moving mean. Point at a line for its numbers.")
          for stage in _stages(curves)),
        _section("Completions", token_sections(examples) if examples else ""),
        _section("Configuration and versions", _details(config_text, versions or {})),
    ]  # fmt: skip
    return write_atomic(path, page(title, "\n".join(section for section in sections if section)))


def kind_rows(summary: Summary, name: str = "by_kind") -> list[KindRow]:
    """The accuracy-per-kind table of a summary, or with `by_kind_shuffled` that of the shuffled frames."""
    best = summary.get("order_blind", {}).get("best", {})
    rows = summary.get("rows_by_kind", {})
    return [
        KindRow(
            kind,
            rows.get(kind),
            {stage: interval_of(summary, name, stage, kind=kind) for stage in STAGES},
            best.get(kind),
        )
        for kind in summary.get(name, {})
    ]


def curve_charts(rows: Iterable[Mapping[str, Any]], stage: str) -> list[str]:
    """The charts of one stage that have data, as HTML figures."""
    own = [row for row in rows if row.get("stage") == stage and isinstance(row.get("step"), int | float)]
    own.sort(key=lambda row: row["step"])
    names = sorted({name for row in own for name in row})
    charts = []
    for curve in CURVES.get(stage, ()):
        series = [
            Series(label, tuple((row["step"], row[name]) for row in own if _is_number(row.get(name))), color)
            for label, (pattern, color) in curve.lines.items()
            for name in [name for name in names if fnmatchcase(name, pattern)][:1]
        ]
        charts.append(line_chart(curve.title, series, y_zero=curve.zero))
    return [chart for chart in charts if chart]


def _section(title: str, content: str, note: str = "") -> str:
    if not content:
        return ""
    lead = f'<p class="lead">{escape(note)}</p>' if note else ""
    return element("section", f"<h2>{escape(title)}</h2>{lead}{content}")


def _header(title: str, summary: Summary) -> str:
    return (
        f'<header class="top"><p class="over">ktr run report</p><h1>{escape(title)}</h1>'
        f'<p class="verdict">{escape(_verdict(summary).replace(" %", NBSP + "%"))}</p></header>'
    )


def _verdict(summary: Summary) -> str:
    """The result in one sentence, as strong as its interval allows."""
    gain, rl = summary["rl_minus_sft"], summary["accuracy"]["rl"]
    if gain is not None:
        low, high = 100 * gain["low"], 100 * gain["high"]
        sure = "raised" if low > 0 else "lowered" if high < 0 else "did not clearly change"
        return (
            f"Reinforcement learning {sure} held-out accuracy: {100 * summary['accuracy']['sft']:.1f} % after SFT, "
            f"{100 * rl:.1f} % after RL, {100 * gain['mean']:+.1f} points (95 % interval {low:+.1f} to {high:+.1f})."
        )
    done = [(STAGE_NAMES[stage], value) for stage, value in summary["accuracy"].items() if value is not None]
    if not done:
        return "No model was evaluated in this run."
    return "Held-out accuracy: " + ", ".join(f"{name} {100 * value:.1f} %" for name, value in done) + "."


def _headline(summary: Summary) -> str:
    head = ["Model", "Accuracy", SCALE, "Frames shuffled", "Answered", "Mean length"]
    rows = []
    for stage in STAGES:
        full = interval_of(summary, "accuracy", stage)
        mixed = interval_of(summary, "accuracy_shuffled", stage)
        if full is None and mixed is None:
            continue
        sample = summary.get("samples", {}).get(stage, {})
        marks = [_mark(stage, full)] if full is not None else []
        rows.append(
            [
                swatch(stage, SHAPES[stage]) + escape(STAGE_NAMES[stage]),
                _figure(full),
                interval_track(marks),
                _figure(mixed),
                f"{100 * sample['answered_share']:.1f} %" if sample else "",
                f"{sample['mean_tokens']:.0f} tokens" if sample else "",
            ]
        )
    return table(head, rows, class_="figures headline") if rows else ""


def _kinds(rows: Sequence[KindRow]) -> str:
    shown = [stage for stage in STAGES if any(row.scores.get(stage) is not None for row in rows)]
    if not shown:
        return ""
    head = ["Kind", "Rows", SCALE]
    head += [swatch(stage, SHAPES[stage]) + escape(STAGE_NAMES[stage]) for stage in shown]
    body = []
    for row in rows:
        scores = {stage: row.scores.get(stage) for stage in shown}
        marks = [_mark(stage, score) for stage, score in scores.items() if score is not None]
        track = interval_track(marks, ceiling=row.order_blind, ceiling_name="best without frame order")
        count = "" if row.rows is None else f"{row.rows:,}"
        body.append([escape(row.kind), count, track, *(_figure(score) for score in scores.values())])
    return table(head, body, class_="figures kinds")


def _kinds_note(rows: Sequence[KindRow]) -> str:
    note = "Marks are means, lines their 95 % intervals."
    if any(row.order_blind is not None for row in rows):
        note += " Dashed: the best accuracy possible without seeing the order of the frames."
    return note


def _attribution(found: Mapping[str, Any]) -> str:
    rows = []
    for name, value in found.items():
        if not _is_number(value):
            continue
        color = next((signal for signal in SIGNALS if signal in name), "base")
        bar = interval_track([Mark(name, value, min(value, 0.5), max(value, 0.5), color)], ceiling=0.5,
                             ceiling_name="chance")  # fmt: skip
        rows.append([escape(name.replace("_", " ").replace("auroc", "AUROC")), f"<b>{value:.3f}</b>", bar])
    return table(["Signal", "AUROC", '<span class="scale"><i>0</i><i>chance</i><i>1</i></span>'], rows) if rows else ""


def _curves(rows: Sequence[Mapping[str, Any]], stage: str) -> str:
    charts = curve_charts(rows, stage)
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def _stages(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [stage for stage in CURVES if any(row.get("stage") == stage for row in rows)]


def _details(config_text: str, versions: Mapping[str, Any]) -> str:
    parts = []
    if config_text:
        parts.append(f"<details><summary>Resolved configuration</summary><pre>{escape(config_text)}</pre></details>")
    if versions:
        parts.append(f"<details><summary>Versions</summary>{definitions(versions)}</details>")
    return "".join(parts)


def _mark(stage: str, score: Interval) -> Mark:
    return Mark(STAGE_NAMES[stage], score.mean, score.low, score.high, stage, SHAPES[stage])


def _figure(score: Interval | None) -> str:
    """A percentage with its bounds in small print."""
    if score is None:
        return '<span class="none">not run</span>'
    return f"<b>{100 * score.mean:.1f}</b> <small>{100 * score.low:.1f} to {100 * score.high:.1f}</small>"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
