"""Two plans side by side: what changes in the promise, in what is learned, and in what a copy will be worth.

Worked out from the two explanations. Reads no row and spends nothing.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpweave import chosen
from dpweave.explain.explanation_text import task_words
from dpweave.plan.toml_text import as_written, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.plan.explanation import Explanation
    from dpweave.plan.plan import Plan


@dataclass(frozen=True)
class Change:
    """One thing that differs. ``None`` stands on the side that lacks it."""

    part: str
    """``plan``, ``promise``, ``budget`` or ``worth``."""
    what: str
    first: object
    second: object


@dataclass(frozen=True)
class PlanDifference:
    """Everything that differs between two plans, at one epsilon and delta."""

    epsilon: float
    delta: float
    changes: tuple[Change, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        found = [{"part": c.part, "what": c.what, "first": c.first, "second": c.second} for c in self.changes]
        return {"epsilon": self.epsilon, "delta": self.delta, "changes": found}

    def __str__(self) -> str:
        if not self.changes:
            return "The two plans promise the same, cost the same and give the same."
        lines: list[str] = []
        for part, title in TITLES.items():
            found = [c for c in self.changes if c.part == part]
            if found:
                lines += [*([""] if lines else []), title]
            for c in found:
                text = f"{c.what}: {_said(c.first)} → {_said(c.second)}"
                lines.append(textwrap.fill(text, 80, initial_indent="  ", subsequent_indent="    "))
        return "\n".join(lines)


TITLES = {
    "plan": "Declared otherwise",
    "promise": "What changes in the promise",
    "budget": "What changes in noise (one standard deviation, in rows)",
    "worth": "What changes in what a copy is likely to be worth",
}


def compare_plans(first: Plan, second: Plan, *, epsilon: float, delta: float) -> PlanDifference:
    """Return what differs between two plans and between their explanations."""
    declared = _leaves(as_written(first)), _leaves(as_written(second))
    said = first.explain(epsilon=epsilon, delta=delta), second.explain(epsilon=epsilon, delta=delta)
    changes = [
        *_differences("plan", *declared),
        *_differences("promise", *map(_promise, said)),
        *_differences("budget", *map(_noise, said)),
        *_differences("worth", *map(_verdicts, said)),
    ]
    return PlanDifference(epsilon, delta, tuple(changes))


def _leaves(value: object, where: str = "") -> dict[str, object]:
    """Return every value of a plan by its place; lists and domains are one value each."""
    if not isinstance(value, dict) or where.endswith(".domain"):
        return {where: value}
    return {k: v for name, part in value.items() for k, v in _leaves(part, f"{where}.{name}".lstrip(".")).items()}


def _promise(e: Explanation) -> dict[str, object]:
    rows = {f"rows of {h.table} that go with one row of {h.unit}, at most": h.rows for h in e.holdings}
    roles = {f"{r.table}.{r.key} → {r.target}": r.role for r in e.relations}
    outside = {f"rows of {t.table}": f"{t.public_rows:,}, public" for t in e.tables if t.public_rows is not None}
    public = dict.fromkeys(e.public, "public, promised nothing")
    return {"who is protected, and how": e.statement, **public, **outside, **rows, **roles}


def _noise(e: Explanation) -> dict[str, object]:
    return {task_words(s): s.sigma for s in e.budget if s.sigma is not None}


def _verdicts(e: Explanation) -> dict[str, object]:
    found = {f"{j.kind} {j.name}": f"{j.word} (error {j.error:.2g})" for j in e.verdict.judged}
    return {**found, "seconds of one core": e.forecast.seconds, "bytes of memory": e.forecast.memory}


def _differences(part: str, first: Mapping[str, object], second: Mapping[str, object]) -> list[Change]:
    return [
        Change(part, what, first.get(what), second.get(what))
        for what in dict.fromkeys([*first, *second])
        if not _alike(first.get(what), second.get(what))
    ]


def _alike(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= chosen.UNNOTICED * max(abs(a), abs(b))
    return a == b


def _said(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict | list | tuple):
        return value_text(value)
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
