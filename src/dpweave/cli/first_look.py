"""A copy without a plan file: drafted, said in ten lines, asked for once. Reads no row and spends nothing."""

from __future__ import annotations

import math
import sys
import textwrap
from typing import TYPE_CHECKING

import typer

from dpweave.cli.outputs import without_password
from dpweave.cli.screen import NO_TYPES, say
from dpweave.engines.staging import write_text
from dpweave.errors import UsageError
from dpweave.schema.domain import Learn

if TYPE_CHECKING:
    from pathlib import Path

    from dpweave.plan.explanation import Explanation
    from dpweave.plan.plan import Plan


def drafted(
    source: str,
    path: Path,
    *,
    protect: tuple[str, ...],
    public: tuple[str, ...],
    epsilon: float,
    delta: float,
    yes: bool,
    quiet: bool,
    schema: str | None = None,
) -> Plan:
    """Draft a plan, say what it means, ask once, and leave it at ``path``, whatever the answer was."""
    from dpweave.explain.draft_notes import draft_text, untyped

    if not protect:
        raise UsageError("say who is protected: --protect TABLE for a first look, or --plan PLAN.TOML from a draft")
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody is there to ask whether to spend; say --yes if you want it spent")
    plan, text = draft_text(source, protect=protect, public=public, schema=schema)
    explained, without_types = plan.explain(epsilon=epsilon, delta=delta), untyped(source, schema=schema)
    said = first_look(plan, explained, without_password(source), path, untyped=without_types)
    if yes:
        say(said, quiet=quiet)
    else:
        typer.echo(said, err=True)  # a question goes where a machine does not listen
    go_on = yes or typer.confirm(f"Spend epsilon {epsilon:g} on {without_password(source)}?", err=True)
    write_text(path, text)
    if not go_on:
        raise UsageError(f"nothing was spent; the plan is in {path}: edit it, and come back with --plan {path}")
    return plan


def first_look(plan: Plan, e: Explanation, source: str, path: Path, *, untyped: frozenset[str] = frozenset()) -> str:
    """Return what a drafted plan means, in at most ten lines of at most 80 columns.

    ``untyped`` are the tables whose columns have no type in the source.
    """
    owned = [f"{h.rows:,} rows of {h.table}" for h in e.holdings if h.table not in e.protect]
    learned = sum(isinstance(c.domain, Learn) for n in plan.promise.private for c in plan.table[n].columns)
    made_up = [f"{t.table}.{c}" for t in e.tables for c in t.made_up if c not in plan.database[t.table].key_columns]
    words = {w: sum(j.word == w for j in e.verdict.judged) for w in ("useful", "coarse", "noise only")}
    predicted = ", ".join(f"{n} {w}" for w, n in words.items() if n)
    factor = f"{math.exp(min(e.epsilon, 700)):,.3g}"
    texts = [NO_TYPES] if untyped & set(plan.promise.private) else []
    found = (
        f"Drafted from the catalogue of {source}; no row was read.",
        *texts,
        f"Protected: {', '.join(e.protect)}" + (f", each with at most {', '.join(owned)}." if owned else "."),
        f"Public, copied as they are and promised nothing: {', '.join(e.public) or 'none'}.",
        (
            f"The promise: conclusions are at most {factor} times as likely with a unit as without, but for a chance of"
            f" {e.delta:g}."
        ),
        f"{learned} domains are learned under the budget. Made up: {', '.join(made_up) or 'nothing'}.",
        f"Predicted, if tables are as large as guessed: {predicted or 'nothing'}.",
        f"About {max(1, round(e.forecast.seconds)):,} s of one core. The plan will be in {path}; edit it to do better.",
    )
    out: list[str] = []
    for i, text in enumerate(found):
        room = 10 - len(out) - (len(found) - i - 1)  # one line is left for each that comes
        folded = textwrap.wrap(text, 80, break_on_hyphens=False, max_lines=min(room, 2), placeholder=" …")
        out += folded
    return "\n".join(out)
