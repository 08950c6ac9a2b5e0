"""What commands put on the screen: sentences for people, JSON for machines, nothing wider than 80 columns."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import typer

from dpweave import chosen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dpweave.budget.spending import DatabaseSummary
    from dpweave.explain.check_plan import Finding
    from dpweave.model.synthetic_database import SyntheticDatabase
    from dpweave.plan.explanation import Verdict
    from dpweave.plan.plan import Plan
    from dpweave.privacy.certificate import Certificate


def complain(message: str, code: int) -> None:
    """Put one sentence on the error stream, folded where a person reads it; a machine
    that asked for JSON gets it as such too.
    """
    if "--json" in sys.argv:
        say_json({"error": message, "exit_code": code})
    text = f"dpweave: {message}"
    if sys.stderr.isatty():
        text = textwrap.fill(
            text, min(shutil.get_terminal_size().columns, 80), subsequent_indent="  ", break_on_hyphens=False
        )
    typer.echo(text, err=True)


def say(text: str, *, quiet: bool = False) -> None:
    """Print words, unless nobody wants them."""
    if not quiet:
        typer.echo(text)


def say_json(content: object) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=str))


NO_TYPES = (
    "The files say no types, so all is taken for text: numbers and dates will be lost. The plan can declare types."
)


def after_draft(plan: Plan, out: Path, *, left_out: tuple[str, ...] = (), untyped: frozenset[str] = frozenset()) -> str:
    """Return what to say once a draft is written: who is protected, what is not modelled, what comes next.

    ``untyped`` are the tables whose columns have no type in the source.
    """
    from dpweave.explain.draft_notes import said_of_left_out, said_of_second_owner
    from dpweave.plan.drafting import looks_like_a_key
    from dpweave.schema.domain import Learn, Opaque

    private = [plan.table[n] for n in plan.promise.private]
    hidden = [(f"{t.name}.{c.name}", c.column) for t in private for c in t.columns if isinstance(c.domain, Opaque)]
    keys = [name for name, column in hidden if looks_like_a_key(column)]
    opaque = [name for name, column in hidden if not looks_like_a_key(column)]
    learned = [f"{t.name}.{c.name}" for t in private for c in t.columns if isinstance(c.domain, Learn)]
    lines = [f"Wrote {out}. Nothing was read but the catalogue."]
    lines.append(
        f"Protected: {', '.join(plan.protect)}." + (f" Public: {', '.join(plan.public)}." if plan.public else "")
    )
    if len(plan.protect) > 1:
        lines.append(
            f"For a person who can have a row in several of these, epsilon counts up to {len(plan.protect)} times."
        )
    lines += [
        f"Mind {t.name}.{k.key.name}: {said_of_second_owner(plan, t.name, k)}"
        for t in private
        for k in t.keys
        if plan.promise.is_shared(t.name, k.key.name)
    ]
    if opaque:
        lines.append(f"Not modelled, because they look like identifiers or prose: {', '.join(opaque)}.")
    if keys:
        lines.append(
            f"Not modelled, and look like keys: {', '.join(keys)}. If one leads to a table, declare a foreign key."
        )
    if left_out:
        lines.append(said_of_left_out(left_out))
    if untyped & set(plan.promise.private):
        lines.append(NO_TYPES)
    if learned:
        lines.append(f"{len(learned)} domains are to be learned under the budget; declare those you know.")
    lines.append(f"Next: edit it, then dpweave explain {out} --epsilon 1")
    return "\n".join(_fold(line) for line in lines)


def check_words(findings: Sequence[Finding]) -> str:
    """Return what is wrong, risky or worth knowing about a plan, the worst first, in 80 columns."""
    if not findings:
        return "The plan fits the catalogue, and nothing in it is risky."
    lines = []
    for f in findings:
        head = f"{f.severity:<6} {f.where}: "
        lines.append(textwrap.fill(head + f.text, 80, subsequent_indent=" " * 7, break_on_hyphens=False))
    counts = {s: sum(f.severity == s for f in findings) for s in dict.fromkeys(f.severity for f in findings)}
    return "\n".join([*lines, ", ".join(f"{n} {s}" for s, n in counts.items()) + "."])


def rows_apart(copy: SyntheticDatabase, public: Sequence[str]) -> dict[str, int]:
    """Return how many rows of a copy are synthetic, and how many were copied from public tables as they are."""
    copied = sum(n for table, n in copy.rows.items() if table in public)
    return {"synthetic_rows": sum(copy.rows.values()) - copied, "copied_rows": copied}


def sample_words(copy: SyntheticDatabase, target: str, *, public: Sequence[str]) -> str:
    """Return what was written where, and which rows had to be mended to keep the plan's rules."""
    mended = [f"Mended {n:,} rows to keep {rule}." for rule, n in copy.repairs.items() if n]
    rows, tables = rows_apart(copy, public), sum(name in public for name in copy)
    said = f"Wrote {rows['synthetic_rows']:,} synthetic rows in {_tables(len(copy) - tables)} to {target}."
    if tables:
        said += f" Copied {rows['copied_rows']:,} rows of {_tables(tables, 'public ')} as they are."
    return "\n".join(_fold(words) for words in (said, *mended))


def folded(text: str, *, indent: int) -> str:
    """Fold each line at 80 columns; what goes on is indented."""
    lines = text.split("\n")
    return "\n".join(textwrap.fill(x, 80, subsequent_indent=" " * indent, break_on_hyphens=False) for x in lines)


def _fold(text: str) -> str:
    return textwrap.fill(text, 80, break_on_hyphens=False, break_long_words=False)


def _tables(count: int, kind: str = "") -> str:
    return f"{count} {kind}table{'s' * (count != 1)}"


def unspent(certificate: Certificate, asked: float) -> dict[str, float]:
    """Return how much of the epsilon that was asked for each protected table has left,
    where it is more than a rounding.
    """
    left = {g.table: asked - g.epsilon for g in certificate.tables}
    return {table: rest for table, rest in left.items() if rest > chosen.UNNOTICED * asked}


def spent_words(certificate: Certificate, *, asked: float | None = None) -> str:
    """Return the promise and what it cost, folded; and what is left of ``asked``, the
    epsilon that might have been spent.
    """
    tables = ", ".join(f"{g.table} epsilon {g.epsilon:.4g}" for g in certificate.tables)
    text = (
        f"{certificate.statement} Spent: {tables}, at delta {certificate.delta:g} ({certificate.neighbours}"
        " neighbours)."
    )
    notes = [f"Mind: {caveat}." for caveat in certificate.caveats]
    if left := unspent(certificate, asked or 0.0):
        rest = ", ".join(f"{table} {value:.3g}" for table, value in left.items())
        notes.append(
            f"Not spent of epsilon {asked:g}: {rest}. What this plan measures did not need it, and the "
            "ledger counts only what was spent."
        )
    return "\n".join(textwrap.fill(words, 80, break_on_hyphens=False) for words in (text, *notes))


COLOURS = {"useful": typer.colors.GREEN, "coarse": typer.colors.YELLOW, "noise only": typer.colors.RED}


def verdict_words(verdict: Verdict) -> str:
    """Return what a copy is worth as a table, in colour where that can be seen, and what to change first."""
    counts = {name: sum(j.word == name for j in verdict.judged) for name in COLOURS}
    said = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    text = str(verdict)
    for name, colour in COLOURS.items():
        text = text.replace(f" {name:<10} ", f" {typer.style(f'{name:<10}', fg=colour)} ")
    return f"What copies are worth, of {len(verdict.judged)} tables and relations: {said}.\n{text}"


def database_dict(found: DatabaseSummary, delta: float) -> dict[str, Any]:
    """Return what was spent on one database, and what is left under its cap, as plain values."""
    tables = {}
    for table in sorted({*found.total.rho, *found.total.delta}):
        left = None if found.cap is None else found.cap.left(found.committed or found.total, table)
        tables[table] = {
            "rho": found.total.rho.get(table, 0.0),
            "delta_spent": found.total.delta.get(table, 0.0),
            "epsilon": _epsilon(found, table, delta),
            "rho_left": None if left is None else left.rho,
        }
    runs = [
        {
            "run": run,
            "time": entries[0].time,
            "label": entries[0].label,
            "charges": sum(e.kind == "charge" for e in entries),
            "rho": {
                t: sum(e.cost.rho.get(t, 0.0) for e in entries)
                for t in sorted({t for e in entries for t in e.cost.rho})
            },
            "reserved": dict(found.reserved[run].rho) if run in found.reserved else {},
        }
        for run, entries in found.runs.items()
    ]
    cap = None if found.cap is None else {"epsilon": found.cap.epsilon, "delta": found.cap.delta}
    return {"delta": delta, "cap": cap, "tables": tables, "runs": runs}


def _epsilon(found: DatabaseSummary, table: str, delta: float) -> float | None:
    """Return epsilon at ``delta``, or None where thresholds have used up so much delta already."""
    return found.epsilon(table, delta=delta) if found.total.delta.get(table, 0.0) < delta else None


def verified_words(anchor: str, held: int | None) -> str:
    """Return what a ledger that was read whole is known to be, and what is not known."""
    lines = anchor.partition(": ")[2].partition(",")[0]
    if held is None:
        rest = (
            "Whether lines are missing at its end, or the last one was changed, only an anchor tells that was kept"
            " elsewhere: --against."
        )
    else:
        rest = f"It has all that {held} anchor{'s' * (held != 1)} know{'s' * (held == 1)}."
    return _fold(f"The ledger has {lines}, and each follows the one before. {rest}")


def database_words(name: str, found: DatabaseSummary, delta: float) -> str:
    """Return the same as a small table."""
    content = database_dict(found, delta)
    lines = [name]
    if content["cap"]:
        lines.append(f"  cap: epsilon {content['cap']['epsilon']:g}, delta {content['cap']['delta']:g}")
    lines.append(f"  {'table':<30} {'rho':>10} {'epsilon':>10}  at delta {delta:g}")
    for table, t in content["tables"].items():
        epsilon = "–" if t["epsilon"] is None else f"{t['epsilon']:.4g}"
        left = "" if found.cap is None else f"  up to {found.affordable((table,), delta=delta):.3g} left"
        lines.append(f"  {table[:30]:<30} {t['rho']:>10.4g} {epsilon:>10}{left}")
    for r in content["runs"]:
        who = f" by {r['label']}" if r["label"] else ""
        spent = max(r["rho"].values(), default=0.0)
        charges = f"{r['charges']:>4} charge{'s' * (r['charges'] != 1)}"
        lines.append(f"  {r['time'][:16].replace('T', ' ')}  {charges}, rho {spent:.4g}{who}"[:80])
        if r["reserved"]:
            more = max(most - r["rho"].get(table, 0.0) for table, most in r["reserved"].items())
            lines.append(f"    not ended, may spend rho {more:.4g} more: {r['run']}")
    return "\n".join(lines)
