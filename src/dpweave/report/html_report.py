"""The report as one HTML file: no script, no request, readable on a phone, in the dark and on paper."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.engines.staging import write_text
from dpweave.explain.verdict import found as found_verdict
from dpweave.report import svg_figures
from dpweave.report.cards import relations_section, tables_section
from dpweave.report.fidelity import column_noise, fidelity
from dpweave.report.html_page import figures, page, table
from dpweave.report.svg_figures import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.model.model import Model
    from dpweave.plan.explanation import Judged, Verdict
    from dpweave.report.fidelity import Fidelity

MOST_EVENTS = 400


def report(model: Model, db: Mapping[str, pa.Table], path: str | Path) -> None:
    """Write what was promised, what was measured and how the copy compares, as one file that is safe to share.

    It is made from the release and the synthetic database alone; no private row is read.
    """
    write_text(Path(path), render(model, db))


def verdict(model: Model) -> Verdict:
    """What copies of a model are worth, table by table and key by key, and what to change first.

    From the release alone: it may be shared, as the model may.
    """
    return found_verdict(model, column_noise(model))


def render(model: Model, db: Mapping[str, pa.Table]) -> str:
    """Return the report as HTML."""
    found = fidelity(model, db)
    judgement = verdict(model)
    sections = {
        "worth": ("What it is worth", _verdict(judgement)),
        "promise": ("The promise", _promise(model)),
        "database": ("The database", _database(model, db)),
        "checks": ("Integrity checks", _checks(found) + _repairs(model, db)),
        "tables": ("Tables", tables_section(found)),
        "relations": ("Relations", relations_section(found)),
        "weak": ("Where evidence is weak", _weak(model, found)),
        "ledger": ("What was spent", _ledger(model)),
        "words": ("Words used here", _words()),
    }
    certificate = model.certificate
    insecure = (
        "INSECURE: the noise came from a known seed. This copy protects nobody." if certificate.insecure else None
    )
    badge = "" if insecure else '<span class="badge good">Safe to share</span>'
    head = (
        f'{badge}<h1>Synthetic copy of {escape(certificate.database)}</h1><p class="lead">Made under differential'
        " privacy. This page shows what was promised to the people in the original, and how close the copy comes to"
        " what could be measured. No row of the original was used to write it: everything below comes from published"
        " noisy counts and from the copy itself, which must be one that this model made.</p>"
        + _headline(model, found, judgement)
    )
    versions = ", ".join(f"{escape(k)} {escape(v)}" for k, v in certificate.versions.items())
    foot = f"<p>Run <code>{escape(certificate.run)}</code>. Made with {versions}.</p>"
    return page(f"Synthetic copy of {certificate.database}", head, sections, foot, stamp=insecure)


# -- the parts ---------------------------------------------------------------------------------------------------------


def _headline(model: Model, found: Fidelity, judgement: Verdict) -> str:
    certificate = model.certificate
    rules = [c for c in found.checks if not c.advisory]
    kept = sum(c.passed for c in rules)
    useful = sum(j.word == "useful" for j in judgement.judged)
    learned = sum(r.verdict == "learned" for r in found.relations)
    return figures(
        [
            ("Privacy loss ε", f"{certificate.epsilon:.3g}", f"δ = {certificate.delta:.2g}"),
            ("Protected", ", ".join(model.plan.protect), f"one {certificate.neighbours} at a time"),
            ("Tables", f"{len(found.tables)}", f"{sum(t.rows for t in found.tables):,} rows in the copy"),
            ("Integrity", f"{kept} of {len(rules)}", "rules kept"),
            ("Useful", f"{useful} of {len(judgement.judged)}", "tables and relations; the others are coarse or noise"),
            ("Relations learned", f"{learned} of {len(found.relations)}", "the others are wired without evidence"),
        ]
    )


WORDS = {"useful": "good", "coarse": "note", "noise only": "bad"}


def _verdict(judgement: Verdict) -> str:
    """What each table and relation is worth, and what to change first."""
    intro = (
        "<p>How much of what one would ask of this copy rests on evidence. The error is the part of the rows that noise"
        " puts in the wrong place, in the mean over a table's columns, or over pairs of columns across a key: up to"
        f" {chosen.USEFUL:g} is useful, up to {chosen.COARSE:g} coarse, above that noise only:"
        " what the copy shows there is mostly made up. It is judged by what was counted, before any row was drawn. What"
        " columns of one row say together is not part of a table's verdict, nor what rules changed in the rows: for"
        " these, look at the pictures and the rules below.</p>"
    )
    rows = [(j.name, j.word, f"{j.error:.2f}", _size(j), ", ".join(j.unlearned) or "–") for j in judgement.judged]
    heads = ["table or relation", "verdict", "error", "rows ± 2 σ", "domains not learned, or not well"]
    judged = table("Verdict on each table and relation", heads, rows, numeric=(2, 3))
    for word, colour in WORDS.items():
        judged = judged.replace(f"<td>{word}</td>", f'<td><span class="badge {colour}">{word}</span></td>')
    advice = "".join(f"<li>{escape(text)}</li>" for text in judgement.advice)
    change = f"<h3>What to change first</h3><ol>{advice}</ol>" if advice else ""
    return f'<div class="card">{intro}{judged}{change}</div>'


def _size(judged: Judged) -> str:
    if judged.rows is None:
        return "–"
    return f"{judged.rows:,.0f}" + (f" ± {judged.band:,.0f}" if judged.band else "")


def _promise(model: Model) -> str:
    c = model.certificate
    sure = 1 / (1 + math.exp(-min(c.epsilon, 700)))
    plain = (
        "<p>In plain words: take someone who knows nothing about whether a particular one of them is in the data, and"
        " would bet fifty-fifty. After seeing this copy, and everything else published here, that person can be at"
        f" most <strong>{percent(sure)}</strong> sure either way, apart from a chance of about {_one_in(c.delta)}. The"
        " smaller ε, the closer this stays to 50 %.</p>"
    )
    if c.neighbours == "record":
        plain = plain.replace(
            "whether a particular one of them is in the data", "which of two values one of their rows holds"
        )
    rows = [(g.table, f"{g.epsilon:.4g}", f"{g.delta:.2g}", f"{g.rho:.4g}") for g in c.tables]
    bounds = [(t, k, f"{b:,}") for t, k, b in c.bounds]
    owned = [(u, t, f"{n:,}") for u, per in c.owned_rows.items() for t, n in per.items()]
    caveats = "".join(f"<li>{escape(x)}</li>" for x in c.caveats)
    outside = "".join(f"<li>{escape(', '.join(f'{k}: {v}' for k, v in x.items()))}</li>" for x in c.external)
    public = ", ".join(model.plan.public)
    return (
        f'<div class="card"><blockquote><p>{escape(c.statement)}</p></blockquote>{plain}'
        + (
            f"<p>Copied through unchanged, because the plan declares them public: {escape(public)}.</p>"
            if public
            else ""
        )
        + (f"<ul class='plain'>{caveats}</ul>" if caveats else "")
        + (
            f"<p>Parts made by mechanisms outside dpweave, on their own word:</p><ul class='plain'>{outside}</ul>"
            if outside
            else ""
        )
        + table("What each protected table was promised", ["table", "ε", "δ", "ρ (zCDP)"], rows, numeric=(1, 2, 3))
        + "<details><summary>Bounds that the promise rests on</summary>"
        + table(
            "How many rows may lead to one row by each foreign key", ["table", "key", "at most"], bounds, numeric=(2,)
        )
        + table("How many rows one protected row can own", ["protected", "table", "rows"], owned, numeric=(2,))
        + "</details></div>"
    )


def _one_in(delta: float) -> str:
    return f"1 in {1 / delta:,.0f}" if 0 < delta < 1 else f"{delta:g}"


def _database(model: Model, db: Mapping[str, pa.Table]) -> str:
    plan = model.plan
    rows = {name: db[name].num_rows for name in plan.database.names}
    words = "".join(
        f"<li><strong>{escape(t.name)}</strong>, {svg_figures.role_of(plan, t.name)}, {rows[t.name]:,} rows"
        + (
            ": "
            + "; ".join(f"<code>{escape(k.key.name)}</code> leads to {escape(k.key.target)} ({k.role})" for k in t.keys)
            if t.keys
            else ""
        )
        + "</li>"
        for t in plan.tables
    )
    line = '<svg viewBox="0 0 34 10" aria-hidden="true"><line class="edge {0}" x1="0" y1="5" x2="34" y2="5"/></svg>'
    legend = "".join(
        f"<li>{mark}{text}</li>"
        for mark, text in (
            ('<span class="badge protected">protected</span>', "whom the promise is about"),
            ('<span class="badge owned">owned</span>', "belongs to one protected row"),
            ('<span class="badge public">public</span>', "copied as it is"),
            (line.format("owning"), "owning key"),
            (line.format("shared"), "shared key"),
            (line.format("linking"), "linking key"),
            (line.format("attribute"), "key into a public table"),
        )
    )
    across = min(5, max(2, math.ceil(math.sqrt(len(rows)) * 1.2)))
    return (
        f'<div class="card"><ul class="legend" aria-label="Legend">{legend}</ul>'
        '<figure style="margin:0"><div class="schema-wide"'
        f' style="max-width:{180 * across}px">{svg_figures.schema(plan, rows, across=across)}</div>'
        f'<div class="schema-narrow">{svg_figures.schema(plan, rows, across=2)}</div>'
        f"<figcaption>Arrows run from a table to the table it refers to.</figcaption></figure>"
        f"<details><summary>The drawing as a list</summary><ul class='plain'>{words}</ul></details></div>"
    )


def _checks(found: Fidelity) -> str:
    rules: dict[str, list[Any]] = {}
    for c in found.checks:
        rules.setdefault(c.rule, []).append(c)
    broken = [c for c in found.checks if not c.passed]
    rows = []
    for rule, checks in rules.items():
        bad = [c for c in checks if not c.passed]
        state = "kept" if not bad else "note" if all(c.advisory for c in bad) else "BROKEN"
        rows.append((rule, f"{len(checks) - len(bad)} of {len(checks)}", state))
    hard = [c for c in broken if not c.advisory]
    verdict = (
        '<p class="good"><strong>Every rule of the schema holds in the copy.</strong></p>'
        if not hard
        else f'<p class="bad"><strong>{len(hard)} rules are broken in the copy.</strong></p>'
    )
    details = ""
    if broken:
        lines = [(c.rule, c.where, c.detail, "note" if c.advisory else "BROKEN") for c in broken]
        details = table("Rules that do not hold everywhere", ["rule", "where", "what was found", "weight"], lines)
        details += (
            '<p class="soft">A note is no fault: a bound limits how much one protected row adds to the counts, and'
            " where a key is mandatory the copy may need more rows than that.</p>"
        )
    return (
        "<div"
        f' class="card">{verdict}'
        f"{table('Rules checked on the copy', ['rule', 'holds', 'verdict'], rows, numeric=(1,))}{details}</div>"
    )


def _repairs(model: Model, db: Mapping[str, pa.Table]) -> str:
    """What the rules that the plan declares have cost; a copy that was read back does not know, and that is said."""
    repairs: Mapping[str, int] = getattr(db, "repairs", {})
    rows = {str(rule): db[rule.table].num_rows for rule in model.plan.constraints}
    if rows.keys() - repairs.keys():
        return (
            '<div class="card"><p>The plan declares rules that every row must keep. Rows that were drawn against one'
            " were changed after drawing, so rules that hold here do not say that the original keeps them. How many"
            " rows that were cannot be told from a copy that was read back: <code>dpweave sample</code> says it when it"
            " writes, and <code>dpweave run</code> shows it here.</p></div>"
        )
    if not repairs:
        return ""
    lines = [(rule, f"{n:,}", percent(n / max(rows[rule], 1)) if rule in rows else "–") for rule, n in repairs.items()]
    made = table("Rows that were mended after drawing", ["rule", "rows changed", "share"], lines, numeric=(1, 2))
    return (
        '<div class="card"><p>The plan declares rules that every row must keep. Rows that were drawn against one were '
        f"mended; where that was often, the columns of the rule are further from what was measured.</p>{made}</div>"
    )


def _weak(model: Model, found: Fidelity) -> str:
    lines: list[str] = []
    for r in found.relations:
        if r.verdict == "random":
            lines.append(
                f"{r.name}: links are wired at random within the degrees, so the copy says nothing about which rows go"
                " together."
            )
        elif r.verdict == "weak" and r.shown_at is None:
            tried = (
                f"{len(r.pairs)} pairs of columns were measured across it and none stands"
                if r.pairs
                else "no pair of columns was found that stands"
            )
            lines.append(f"{r.name}: {tried} out of the noise; links follow the measured columns of each side alone.")
    for t in found.tables:
        for c in t.columns:
            shares = c.measured_shares
            wide = float(c.band.max(initial=0.0))
            if shares is not None and wide > 0.5 * float(np.abs(shares).max(initial=0.0)):
                lines.append(
                    f"{t.name}.{c.name}: the error band (± {percent(wide)}) is wide against the shares it measures."
                )
        if t.used_rows is not None and t.rows_sigma and t.used_rows < 10 * t.rows_sigma:
            lines.append(
                f"{t.name}: about {t.used_rows:,.0f} rows, measured with noise of σ = {t.rows_sigma:,.1f}; small tables"
                " are hard to copy."
            )
    lines += [
        f"{d.table}.{d.column}: values with a noisy count of {'owners' if d.by_unit else 'rows'} below"
        f" {d.threshold:,.0f} are not named and appear as “(other)”."
        for d in model.release.discovered
    ]
    if not lines:
        return '<div class="card"><p>Nowhere: every measurement stands clearly out of its noise.</p></div>'
    items = "".join(f"<li>{escape(x)}</li>" for x in lines)
    return (
        '<div class="card"><p>Noise hides people, and it hides weak patterns too. Do not draw conclusions from the'
        f' copy here:</p><ul class="plain">{items}</ul></div>'
    )


def _ledger(model: Model) -> str:
    c = model.certificate
    tables = [g.table for g in c.tables]
    rows = []
    for event in c.events[:MOST_EVENTS]:
        rest = {k: v for k, v in event.items() if k not in ("n", "rho", "delta", "verb", "what")}
        rho, delta = event.get("rho", {}), event.get("delta", {})
        rows.append(
            (
                event.get("n", ""),
                event.get("verb", ""),
                event.get("what", ""),
                *(f"{rho.get(t, 0):.3g}" for t in tables),
                f"{max(delta.values(), default=0):.2g}" if delta else "–",
                "; ".join(f"{k} {_brief(v)}" for k, v in rest.items()),
            )
        )
    more = f", the first {MOST_EVENTS} of {len(c.events):,}" if len(c.events) > MOST_EVENTS else ""
    made = table(
        f"Every question that was asked of the private rows{more}",
        ["line", "verb", "what", *(f"ρ {t}" for t in tables), "δ", "how"],
        rows,
        numeric=(0, *range(3, 4 + len(tables))),
    )
    totals = "".join(
        f"<li>{escape(g.table)}: ρ = {g.rho:.4g}, which is ε = {g.epsilon:.4g} at δ = {g.delta:.2g}</li>"
        for g in c.tables
    )
    return (
        f'<div class="card"><p>{len(c.events):,} questions were charged before they were answered. Costs add up for'
        " each protected table; "
        f"the promise is the largest of them.</p><ul class='plain'>{totals}</ul><details><summary>The ledger of this"
        f" run</summary>{made}</details></div>"
    )


def _brief(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _words() -> str:
    words = {
        "Copy": "The synthetic database: as many rows as were measured, none of which belongs to anybody.",
        "Differential privacy": (
            "A promise that what is published would have looked almost the same without any one protected row and all"
            " that belongs to it."
        ),
        "ε (epsilon), δ (delta)": (
            "How strong the promise is. Smaller is stronger. ε bounds how much odds can shift; δ is the small chance"
            " that this bound is passed."
        ),
        "Protected, owned, public": (
            "The promise is about rows of protected tables. Owned tables belong to them and are covered with them."
            " Public tables are copied as they are."
        ),
        "Noisy measurement": (
            "A count of the original with random noise on it, the only thing that ever left the original. σ is the size"
            " of the noise."
        ),
        "Error band": "The measurement plus and minus 2 σ. The true value lies inside it 95 times out of 100.",
        "Degree": "How many rows of one table lead to one row of another: orders per customer.",
        "Stands out": (
            "A dependence that is stronger than noise alone makes any that is looked at across a key, but for"
            f" {round(100 * chosen.LEVEL):g} key in a hundred. The more pairs of columns are looked at, the more each"
            " has to show. The certificate says the same."
        ),
        "ρ (rho)": (
            "The unit in which questions are charged (zero-concentrated differential privacy). It adds up, and converts"
            " to ε and δ at the end."
        ),
    }
    return (
        '<div class="card"><dl class="words">'
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in words.items())
        + "</dl></div>"
    )
