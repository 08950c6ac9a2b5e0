"""The evaluation for eyes: a table in the terminal and a page, both stamped NOT PRIVATE from top to bottom."""

from __future__ import annotations

import math
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

from dpweave.evaluation.baselines import HALVES, INDEPENDENT, MEANING, RANDOM, RESAMPLED, SHUFFLED, SYNTHETIC
from dpweave.report.html_page import figures, page, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.evaluation.figures import EvaluationFigures

RIVALS = (SYNTHETIC, SHUFFLED, RANDOM, INDEPENDENT, RESAMPLED)
SHORT = {
    SYNTHETIC: "synthetic",
    SHUFFLED: "shuffled",
    RANDOM: "random",
    INDEPENDENT: "independ.",
    RESAMPLED: "resampled",
    HALVES: "halves",
}
OF_UNITS = (SYNTHETIC, SHUFFLED, RANDOM, HALVES)
SCOPES = {
    "within": "within tables",
    "across": "across a foreign key",
    "two-hop": "two hops away",
}


def number(value: float | None) -> str:
    """Write a figure with about three digits; a dash where there is none.

    >>> number(12.345), number(0.01234), number(float("nan")), number(None)
    ('12.3', '0.0123', '–', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def both(mean: Mapping[str, float], worst: Mapping[str, float], rival: str) -> str:
    """Write mean and largest error."""
    known = math.isfinite(mean.get(rival, math.nan))
    return f"{number(mean[rival])}/{number(worst[rival])}" if known else "–"


# -- the terminal ------------------------------------------------------------------------------------------------------


def evaluation_text(e: EvaluationFigures) -> str:
    """Return the evaluation in 80 columns."""
    lines = [e.stamp, ""]
    lines += _block(
        f"100 x L1 error, mean/largest over sets of up to {e.k} columns",
        [SHORT[r] for r in RIVALS],
        [
            (f"{x.where} ({x.scope}, k={x.k}, {x.workloads} of {x.of})", [both(x.mean, x.worst, r) for r in RIVALS])
            for x in e.errors
        ],
    )
    lines += _block(
        "degrees: Kolmogorov-Smirnov distance, rows per target / share linked",
        [SHORT[r] for r in RIVALS[:3]],
        [(d.where, [f"{d.target[r]:.3f}/{d.own[r]:.3f}" for r in RIVALS[:3]]) for d in e.degrees],
    )
    lines += _block(
        "association that survives: 1 all of it, 0 random wiring",
        [SHORT[r] for r in RIVALS[:3]],
        [
            (f"{x.where} ({x.pairs} of {x.of} pairs)", [number(x.value.get(r)) for r in RIVALS[:3]])
            for x in e.retentions
        ],
    )
    lines += _block(
        "units: what rows of one owner have in common, and their order",
        [SHORT[r] for r in OF_UNITS],
        [(f"{s.where}: {s.name}", [number(s.value.get(r)) for r in OF_UNITS]) for s in e.units],
    )
    lines += _block(
        "further figures",
        [],
        [(f"{s.name}: {s.where}", [f"{SHORT.get(n, n)} {number(v)}" for n, v in s.value.items()]) for s in e.scores],
    )
    lines.append("what it is compared with")
    lines += [line for n, m in MEANING.items() for line in wrap(f"  {SHORT[n]}: {m}", 80, subsequent_indent="    ")]
    lines += ["", *(line for n in e.notes for line in wrap(f"note: {n}", 80, subsequent_indent="  "))]
    return "\n".join([*lines, "", e.stamp])


def _block(title: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    if not rows:
        return []
    out = [title]
    width = max(12, *(1 + len(c) for _, cells in rows for c in cells)) if heads else 0
    indent = " " * max(min(18, 80 - width * len(heads)), 2)
    if heads:
        out.append(indent + "".join(f"{h:>{width}}" for h in heads))
    for name, cells in rows:
        out.append(f"  {name}" if len(name) <= 78 else f"  {name[:76]}…")
        if heads:
            out.append(indent + "".join(f"{c:>{width}}" for c in cells))
        else:
            out += [f"      {c}" for c in cells]
    return [*out, ""]


# -- the page ----------------------------------------------------------------------------------------------------------


def evaluation_page(e: EvaluationFigures) -> str:
    """Return the evaluation as one HTML page."""
    sections = {
        "errors": ("Errors", _errors(e)),
        "degrees": ("Degrees", _degrees(e)),
        "association": ("Association", _association(e)),
        "units": ("Units", _units(e)),
        "scores": ("Further figures", _scores(e)),
        "rivals": ("What it is compared with", _rivals()),
    }
    head = (
        '<span class="badge bad">Not private</span><h1>Evaluation against the real database</h1><p class="lead">Every'
        " figure on this page was computed from real rows. It is for people who may see those rows; publishing it would"
        " break the promise that the synthetic copy keeps.</p>" + _headline(e)
    )
    return page("Evaluation (not private)", head, sections, f"<p>{escape(e.stamp)}</p>", stamp=e.stamp)


def _headline(e: EvaluationFigures) -> str:
    items = []
    for scope, words in SCOPES.items():
        found = e.overall(scope)
        if found:
            rival = RANDOM if RANDOM in found else INDEPENDENT
            items.append(
                (
                    f"Mean error {words}",
                    number(found[SYNTHETIC][0]),
                    f"{rival}: {number(found[rival][0])}; largest {number(found[SYNTHETIC][1])}",
                )
            )
    kept = [r for r in e.retentions if r.scope == "across" and r.pairs and math.isfinite(r.value[SYNTHETIC])]
    if kept:
        best = sum(r.value[SYNTHETIC] * r.pairs for r in kept) / sum(r.pairs for r in kept)
        items.append(("Association kept across keys", number(best), "1 is all, 0 is random wiring"))
    return figures(items)


def _errors(e: EvaluationFigures) -> str:
    intro = (
        "<p>For every set of columns, the share of rows in each combination of values is compared with the real one:"
        " 100 times the sum of absolute differences, from 0 (equal) to 200 (nothing in common). Mean / largest over all"
        " sets; the real side is untruncated.</p>"
    )
    made = []
    for scope, words in SCOPES.items():
        rows = [
            (x.where, x.k, f"{x.workloads} of {x.of}", *(both(x.mean, x.worst, r) for r in RIVALS))
            for x in e.errors
            if x.scope == scope
        ]
        if rows:
            made.append(
                table(f"NOT PRIVATE. Errors {words}", ["where", "k", "sets", *RIVALS], rows, numeric=range(1, 8))
            )
    sizes = table(
        "NOT PRIVATE. Rows",
        ["table", "real", "copy"],
        [(t, f"{a:,}", f"{b:,}") for t, (a, b) in e.rows.items()],
        numeric=(1, 2),
    )
    return f'<div class="card">{intro}{"".join(made)}</div><div class="card">{sizes}</div>'


def _degrees(e: EvaluationFigures) -> str:
    rows = [
        (
            d.where,
            number(d.real_mean),
            number(d.synthetic_mean),
            *(f"{d.target[r]:.3f} / {d.own[r]:.3f}" for r in RIVALS[:3]),
        )
        for d in e.degrees
    ]
    made = table(
        "NOT PRIVATE. Degrees, and Kolmogorov-Smirnov distances on both sides",
        ["foreign key", "real mean", "copy's mean", *RIVALS[:3]],
        rows,
        numeric=range(1, 6),
    )
    return (
        '<div class="card"><p>How many rows lead to one row of the target (first figure), and the share of rows that'
        " lead anywhere (second): the largest difference between the two cumulative distributions, from 0 to"
        f" 1.</p>{made}</div>"
    )


def _association(e: EvaluationFigures) -> str:
    kept = table(
        "NOT PRIVATE. Association that survives, over all pairs of columns that go together in the real database",
        ["relation", "pairs", *RIVALS[:3]],
        [(r.where, f"{r.pairs} of {r.of}", *(number(r.value.get(n)) for n in RIVALS[:3])) for r in e.retentions],
        numeric=range(1, 5),
    )
    pairs = table(
        "NOT PRIVATE. The strongest pairs",
        ["pair", "relation", "Cramér's V, real", "Cramér's V, copy", "kept"],
        [
            (f"{a.left} × {a.right}", a.where, number(a.real), number(a.synthetic), number(a.retention[SYNTHETIC]))
            for a in e.associations
        ],
        numeric=(2, 3, 4),
    )
    return (
        '<div class="card"><p>Low query error alone rewards destroying correlation, so this is asked separately: 1'
        " says that what goes together in the real database goes together as strongly in the copy, 0 is what random"
        f" wiring gives, below 0 it was turned around.</p>{kept}<details open><summary>Pair by"
        f" pair</summary>{pairs}</details></div>"
    )


def _units(e: EvaluationFigures) -> str:
    made = table(
        "NOT PRIVATE. What rows of one owner have in common, and in what order they come",
        ["rows", "figure", *OF_UNITS],
        [(s.where, s.name, *(number(s.value.get(r)) for r in OF_UNITS)) for s in e.units],
        numeric=range(2, 6),
    )
    words = "".join(
        f"<dt>{escape(n)}</dt><dd>{escape(m)}</dd>" for n, m in {s.name: s.meaning for s in e.units}.items()
    )
    return f'<div class="card">{made}<dl class="words">{words}</dl></div>' if e.units else "<p>No rows have owners.</p>"


def _scores(e: EvaluationFigures) -> str:
    heads = list(dict.fromkeys(n for s in e.scores for n in s.value))
    rows = [(s.name, s.where, *(number(s.value.get(n)) for n in heads)) for s in e.scores]
    made = ""
    if rows:
        made = table(
            "NOT PRIVATE. Further figures", ["figure", "where", *heads], rows, numeric=range(2, len(heads) + 2)
        )
    words = "".join(
        f"<dt>{escape(n)}</dt><dd>{escape(m)}</dd>" for n, m in {s.name: s.meaning for s in e.scores}.items()
    )
    notes = "".join(f"<li>{escape(n)}</li>" for n in e.notes)
    return (
        f'<div class="card">{made}<dl class="words">{words}</dl>'
        + (f'<ul class="plain">{notes}</ul>' if notes else "")
        + "</div>"
    )


def _rivals() -> str:
    words = "".join(f"<dt>{escape(n)}</dt><dd>{escape(m)}</dd>" for n, m in MEANING.items())
    return f'<div class="card"><dl class="words">{words}</dl></div>'
