"""The one table at the end, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.frame import Goal, Line, Reading, Result


def table(results: Sequence[Result], *, quick: bool, caption: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", show_lines=False)
    for heading in ("measurement", "ours", "peer", "raw limit", "ratio", "goal", "met?"):
        made.add_column(heading, overflow="fold")
    for result in results:
        made.add_section()
        made.add_row(f"[bold]{result.measurement.title}[/] [dim]({result.measurement.name})[/]")
        for line in result.measurement.lines:
            made.add_row(*row(result, line, quick))
    return made


def row(result: Result, line: Line, quick: bool) -> list[str]:
    judged = [judge(goal, result, quick) for goal in line.goals]
    return [
        f"  {line.title}",
        cell(result, line, line.ours, named=False),
        "\n".join(cell(result, line, label) for label in line.peers),
        "\n".join(cell(result, line, label) for label in line.raw),
        *("\n".join(part) for part in (zip(*judged, strict=True) if judged else ((), (), ()))),
    ]


def cell(result: Result, line: Line, label: str, *, named: bool = True) -> str:
    """A contender's figures, or why it has none."""
    prefix = f"{label} " if named else ""
    if trouble := result.trouble(label):
        return prefix + short(trouble.status, trouble.detail)
    reading = result.medians().get(label)
    return prefix + ("–" if reading is None else figures(reading, line))


def short(status: str, detail: str) -> str:
    if status in ("not built", "not installed"):
        return f"[dim]{status}[/]"
    first = detail.partition("\n")[0][:80].replace("[", "\\[")
    return f"[red]{first}[/]"


def figures(reading: Reading, line: Line) -> str:
    if line.values == ("rate",):
        return f"{number(reading['rate'])}{line.unit}"
    return " · ".join(f"{name} {number(reading[name])}{line.unit}" for name in line.values if name in reading)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def judge(goal: Goal, result: Result, quick: bool) -> tuple[str, str, str]:
    """Ratio, goal, met. A goal whose contenders have no figures, and any goal of a quick run, is not judged."""
    if quick:
        return "–", goal.text, "–"
    try:
        figure = goal.figure(result.medians())
    except (KeyError, ZeroDivisionError):
        return "–", goal.text, "–"
    verdict = "[green]yes[/]" if goal.met(figure) else "[red]no[/]"
    return f"{figure:.2f} {goal.unit}", goal.text, verdict


def as_json(results: Sequence[Result], *, quick: bool, caption: str) -> dict[str, Any]:
    return {"quick": quick, "about": caption, "measurements": [one(result, quick) for result in results]}


def one(result: Result, quick: bool) -> dict[str, Any]:
    medians = result.medians()
    return {
        "name": result.measurement.name,
        "title": result.measurement.title,
        "contenders": [
            {
                "label": contender.label,
                "role": contender.role,
                "median": medians.get(contender.label),
                "rounds": [
                    {"status": outcome.status, "reading": outcome.reading, "detail": outcome.detail}
                    for outcome in result.outcomes[contender.label]
                ],
            }
            for contender in result.measurement.contenders
        ],
        "goals": [verdict(goal, result, line, quick) for line in result.measurement.lines for goal in line.goals],
    }


def verdict(goal: Goal, result: Result, line: Line, quick: bool) -> dict[str, Any]:
    try:
        figure = None if quick else goal.figure(result.medians())
    except (KeyError, ZeroDivisionError):
        figure = None
    met = None if figure is None else goal.met(figure)
    return {"line": line.title, "goal": goal.text, "figure": figure, "met": met}
