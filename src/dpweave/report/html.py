"""The report as one HTML file: no script, no request, readable on a phone, in the dark and on paper."""

from __future__ import annotations

import math
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.outputs import write_text
from dpweave.report import drawing
from dpweave.report.drawing import percent
from dpweave.report.fidelity import STANDS_OUT, fidelity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.model import Model
    from dpweave.report.fidelity import Distribution, Fidelity, Pair, RelationView, TableView

MOST_NUMBERS = 40
"""Rows of the tables of numbers under a plot."""
MOST_HEAT_MAPS = 3
"""Pairs drawn for one relation, fewer where there are so many relations that all together would pass the next figure."""
MOST_HEAT_MAPS_IN_ALL = 48
MOST_SEEN = 6
MOST_EVENTS = 400
FORBID = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""The page may load nothing from anywhere."""


def report(model: Model, db: Mapping[str, pa.Table], path: str | Path) -> None:
    """Write what was promised, what was measured and how the copy compares, as one file that is safe to share.

    It is made from the release and the synthetic database alone; no private row is read.
    """
    write_text(Path(path), render(model, db))


def render(model: Model, db: Mapping[str, pa.Table]) -> str:
    """Return the report as HTML."""
    found = fidelity(model, db)
    sections = {
        "promise": ("The promise", _promise(model)),
        "database": ("The database", _database(model, db)),
        "checks": ("Integrity checks", _checks(found)),
        "tables": ("Tables", _tables(found)),
        "relations": ("Relations", _relations(found)),
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
        f"{badge}<h1>Synthetic copy of {escape(certificate.database)}</h1>"
        '<p class="lead">Made under differential privacy. This page shows what was promised to the people in the original, '
        "and how close the copy comes to what could be measured. No row of the original was used to write it: "
        "everything below comes from published noisy counts and from the copy itself.</p>"
        f"{_headline(model, found)}"
    )
    versions = ", ".join(f"{escape(k)} {escape(v)}" for k, v in certificate.versions.items())
    foot = f"<p>Run <code>{escape(certificate.run)}</code>. Made with {versions}.</p>"
    return page(f"Synthetic copy of {certificate.database}", head, sections, foot, stamp=insecure)


def page(title: str, head: str, sections: Mapping[str, tuple[str, str]], foot: str, *, stamp: str | None) -> str:
    """Put sections (anchor → heading, content) into a whole page. ``stamp`` is a warning above everything."""
    css = files("dpweave.report").joinpath("style.css").read_text(encoding="utf-8")
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for anchor, (name, _) in sections.items())
    warning = "" if stamp is None else f'<div class="stamp" role="alert">{escape(stamp)}</div>'
    again = "" if stamp is None else f'<p class="bad"><strong>{escape(stamp)}</strong></p>'
    body = "".join(
        f'<section id="{anchor}" aria-labelledby="{anchor}-h"><h2 id="{anchor}-h">{escape(name)}</h2>{again}{content}</section>'
        for anchor, (name, content) in sections.items()
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{FORBID}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{css}{_on_paper(stamp)}</style></head><body>"
        f'<a class="skip" href="#content">Skip to the content</a>{warning}'
        f'<header class="top"><div class="wrap">{head}</div></header>'
        f'<nav class="contents" aria-label="Contents"><div class="wrap"><ul>{links}</ul></div></nav>'
        f'<main id="content" class="wrap">{body}</main>'
        f'<footer><div class="wrap">{foot}</div></footer></body></html>\n'
    )


def _on_paper(stamp: str | None) -> str:
    """Repeat a warning on every printed sheet."""
    if stamp is None:
        return ""
    words = re.sub(r"[^\w .,:;()-]", " ", stamp)
    return f'@page {{ margin: 18mm 14mm; @top-center {{ content: "{words}"; color: #b3261e; font: 700 9pt sans-serif; }} }}'


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, numeric: Sequence[int] = ()
) -> str:
    """Write a table whose cells are escaped; columns in ``numeric`` stand to the right."""

    def mark(i: int) -> str:
        return ' class="n"' if i in numeric else ""

    head = "".join(f'<th scope="col"{mark(i)}>{escape(c)}</th>' for i, c in enumerate(columns))
    body = "".join("<tr>" + "".join(_cell(i, v, mark(i)) for i, v in enumerate(row)) + "</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(i: int, value: object, mark: str) -> str:
    return f'<th scope="row"{mark}>{escape(str(value))}</th>' if i == 0 else f"<td{mark}>{escape(str(value))}</td>"


def figures(items: Sequence[tuple[str, str, str]]) -> str:
    """Write key figures: name, value, remark."""
    cells = "".join(
        f"<div><dt>{escape(n)}</dt><dd{' class=long' if len(v) > 8 else ''}>{escape(v)}<small>{escape(remark)}</small></dd></div>"
        for n, v, remark in items
    )
    return f'<dl class="figures">{cells}</dl>'


# -- the parts ---------------------------------------------------------------------------------------------------------


def _headline(model: Model, found: Fidelity) -> str:
    certificate = model.certificate
    rules = [c for c in found.checks if not c.advisory]
    kept = sum(c.passed for c in rules)
    plots = [c for t in found.tables for c in t.columns if c.measured_shares is not None]
    cells, agreeing = sum(len(c.labels) for c in plots), sum(c.agreeing for c in plots)
    learned = sum(r.verdict == "learned" for r in found.relations)
    return figures(
        [
            ("Privacy loss ε", f"{certificate.epsilon:.3g}", f"δ = {certificate.delta:.2g}"),
            ("Protected", ", ".join(model.plan.protect), f"one {certificate.neighbours} at a time"),
            ("Tables", f"{len(found.tables)}", f"{sum(t.rows for t in found.tables):,} rows in the copy"),
            ("Integrity", f"{kept} of {len(rules)}", "rules kept"),
            (
                "Values that agree",
                percent(agreeing / cells) if cells else "–",
                f"of {cells:,} measured; chance alone gives 95 %",
            ),
            ("Relations learned", f"{learned} of {len(found.relations)}", "the others are wired without evidence"),
        ]
    )


def _promise(model: Model) -> str:
    c = model.certificate
    sure = 1 / (1 + math.exp(-min(c.epsilon, 700)))
    plain = (
        f"<p>In plain words: take someone who knows nothing about whether a particular one of them is in the data, and would bet "
        f"fifty-fifty. After seeing this copy, and everything else published here, that person can be at most "
        f"<strong>{percent(sure)}</strong> sure either way, apart from a chance of about {_one_in(c.delta)}. "
        f"The smaller ε, the closer this stays to 50 %.</p>"
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
        f"<li><strong>{escape(t.name)}</strong>, {drawing.role_of(plan, t.name)}, {rows[t.name]:,} rows"
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
            (line.format("linking"), "linking key"),
            (line.format("attribute"), "key into a public table"),
        )
    )
    across = min(5, max(2, math.ceil(math.sqrt(len(rows)) * 1.2)))
    return (
        f'<div class="card"><ul class="legend" aria-label="Legend">{legend}</ul>'
        f'<figure style="margin:0"><div class="schema-wide" style="max-width:{180 * across}px">{drawing.schema(plan, rows, across=across)}</div>'
        f'<div class="schema-narrow">{drawing.schema(plan, rows, across=2)}</div>'
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
            '<p class="soft">A note is no fault: a bound limits how much one protected row adds to the counts, and where '
            "a key is mandatory the copy may need more rows than that.</p>"
        )
    return f'<div class="card">{verdict}{table("Rules checked on the copy", ["rule", "holds", "verdict"], rows, numeric=(1,))}{details}</div>'


LEGEND = (
    '<ul class="legend" aria-label="Legend"><li><svg viewBox="0 0 34 12" aria-hidden="true"><rect class="synthetic" x="2" y="1" width="30" height="10" rx="2"/>'
    '</svg>the copy</li><li><svg viewBox="0 0 34 12" aria-hidden="true"><rect class="bandfill" x="4" y="0" width="26" height="12"/>'
    '<circle class="dot" cx="17" cy="6" r="3.2"/></svg>noisy measurement of the original, with its error band (± 2 σ, 95 %)</li></ul>'
)


def _tables(found: Fidelity) -> str:
    intro = (
        "<p>For every column: the share of rows with each value. Bars are the copy; dots are what was measured through the noise, "
        "and the true share lies within the band around the dot 95 times out of 100. A value agrees where the gap between bar "
        "and dot is no wider than the chance of measuring and of drawing rows makes it 95 times out of 100.</p>"
    )
    return intro + LEGEND + "".join(_one_table(t) for t in found.tables)


def _one_table(view: TableView) -> str:
    size = f"{view.rows:,} rows in the copy"
    if view.measured_rows is not None:
        band = f" ± {2 * view.rows_sigma:,.0f}" if view.rows_sigma else ""
        size += f"; measured {view.measured_rows:,.0f}{band} within the bounds"
    how = f", fitted by {escape(view.mechanism)}" if view.mechanism else ""
    plots = "".join(_column(c) for c in view.columns)
    rest = "".join(f"<li><code>{escape(n)}</code>: {escape(why)}</li>" for n, why in view.unmodelled)
    body = (
        f'<div class="cards">{plots}</div>' if plots else "<p class='soft'>No column of this table is modelled.</p>"
    ) + (
        f"<details><summary>{len(view.unmodelled)} columns without a plot</summary><ul class='plain'>{rest}</ul></details>"
        if rest
        else ""
    )
    opened = "" if view.role == "public" else " open"
    return (
        f'<div class="card"><details class="table"{opened}><summary><h3>{escape(view.name)}</h3> '
        f'<span class="badge {view.role}">{view.role}</span> <span class="soft">{size}{how}</span></summary>{body}</details></div>'
    )


def _column(d: Distribution) -> str:
    drawn = len(drawing.shown_codes(d, drawing.MOST_COLUMNS if drawing.is_histogram(d) else drawing.MOST_BARS))
    left_out = f" The {drawn} commonest of {d.last:,} values are drawn." if drawn < d.last else ""
    beyond = " Larger numbers do not occur." if d.last < len(d.labels) else ""
    agreed = "" if d.measured_shares is None else f"{d.agreeing} of {len(d.labels):,} agree with the measurement."
    return (
        f'<figure><div class="head"><h4>{escape(d.name)}</h4><span class="unit">{escape(d.kind)}</span></div>'
        f"{drawing.plot(d)}<figcaption>{agreed}{left_out}{beyond}</figcaption>{_numbers(d)}</figure>"
    )


def _numbers(d: Distribution) -> str:
    codes = drawing.shown_codes(d, MOST_NUMBERS)
    shares = d.measured_shares
    rows = [
        (
            d.labels[c],
            f"{int(d.synthetic[c]):,}",
            percent(float(d.synthetic_shares[c])),
            "–" if shares is None else percent(float(shares[c])),
            "–" if shares is None else f"± {percent(float(d.band[c]))}",
        )
        for c in codes
    ]
    more = f", the {len(codes)} commonest of {d.last:,} values" if len(codes) < d.last else ""
    made = table(f"{d.name}{more}", ["value", "rows", "copy", "measured", "band"], rows, numeric=(1, 2, 3, 4))
    return f'<details class="numbers"><summary>Numbers</summary>{made}</details>'


VERDICTS = {
    "learned": ("good", "learned", "the noisy counts show which rows go together, and the links follow them"),
    "weak": (
        "note",
        "without evidence of pairs",
        "each side was measured, but no pair of columns stands out of the noise",
    ),
    "random": ("note", "wired at random", "nothing was measured about which rows go together"),
}


def _relations(found: Fidelity) -> str:
    if not found.relations:
        return '<div class="card"><p>The private tables have no foreign keys.</p></div>'
    intro = (
        "<p>For every foreign key: how many rows lead to one row of the other table, and which values go together across the key. "
        "In the heat maps orange is commoner than if the two columns had nothing to do with each other, blue is rarer. "
        "The left map is what was measured, noise included; the right one is the copy.</p>"
    )
    rows = [
        (
            *(r.name, r.role, r.kind, VERDICTS[r.verdict][1]),
            *((sum(p.stands_out for p in r.pairs), len(r.pairs)) if r.shown_at is None else ("–", f"see {r.shown_at}")),
        )
        for r in found.relations
    ]
    each = max(1, min(MOST_HEAT_MAPS, MOST_HEAT_MAPS_IN_ALL // len(found.relations)))
    summary = table(
        "What the links rest on",
        ["foreign key", "role", "kind", "links are", "pairs that stand out", "pairs measured"],
        rows,
        numeric=(4, 5),
    )
    return (
        intro
        + f'<div class="card">{summary}</div>'
        + LEGEND
        + "".join(_one_relation(r, heat_maps=each) for r in found.relations)
    )


def _one_relation(r: RelationView, *, heat_maps: int) -> str:
    colour, word, why = VERDICTS[r.verdict]
    linked = percent(r.linked)
    measured = "" if r.linked_measured is None else f" (measured: {percent(r.linked_measured)})"
    other = (
        ""
        if r.shown_at is None
        else f" Both keys make one relation; what was measured across it is shown at {escape(r.shown_at)}."
    )
    facts = (
        f"<p class='soft'>{escape(r.role)} key, {escape(r.kind)}. {linked} of the rows of {escape(r.table)} lead to a row of "
        f"{escape(r.target)}{measured}. Links are {word}: {why}.{other}</p>"
    )
    seen = "".join(_column(d) for d in r.seen[:MOST_SEEN])
    hidden = (
        ""
        if len(r.seen) <= MOST_SEEN
        else f'<p class="soft">{MOST_SEEN} of {len(r.seen)} columns measured over the links are drawn.</p>'
    )
    maps = "".join(_pair(p) for p in r.pairs[:heat_maps])
    left_out = ""
    if len(r.pairs) > heat_maps:
        rows = [
            (
                f"{p.left} × {p.right}",
                _capped(p.evidence),
                "yes" if p.stands_out else "no",
                f"{p.kept:.2f}" if p.stands_out else "–",
            )
            for p in r.pairs[:MOST_NUMBERS]
        ]
        made = table(
            f"Pairs of columns across {r.name}, strongest first",
            ["pair", "evidence (σ above noise)", "stands out", "kept in the copy"],
            rows,
            numeric=(1, 3),
        )
        left_out = f"<details><summary>{min(len(r.pairs), MOST_NUMBERS)} of {len(r.pairs)} measured pairs as a table</summary>{made}</details>"
    return (
        f'<div class="card"><details class="table" open><summary><h3>{escape(r.name)}</h3> <span class="badge {colour}">{word}</span></summary>'
        f'{facts}<div class="cards">{_column(r.degrees)}{seen}</div>{hidden}'
        + (
            f'<h4 style="margin:1rem 0 .5rem">Which values go together</h4><div class="cards wide">{maps}</div>'
            if maps
            else ""
        )
        + f"{left_out}</details></div>"
    )


def _capped(evidence: float) -> str:
    return "more than 99" if evidence > 99 else f"{evidence:.1f}"


def _pair(p: Pair) -> str:
    measured, copy, most = drawing.heat_maps(p)
    drawn = (
        ""
        if max(p.synthetic.shape) <= drawing.MOST_CELLS
        else f" The {drawing.MOST_CELLS} commonest values of each column are drawn."
    )
    verdict = (
        f"Stands {_capped(p.evidence)} σ out of the noise; the copy keeps {p.kept:.2f} of it (1 is all, 0 is random wiring)."
        if p.stands_out
        else "Cannot be told from noise."
    )
    return (
        f'<figure><div class="head"><h4>{escape(p.left)} × {escape(p.right)}</h4></div>'
        f'<div class="maps">'
        f'<div><span class="unit">measured</span>{measured}</div><div><span class="unit">copy</span>{copy}</div></div>'
        f"<figcaption>{verdict} Full colour is ±{100 * most:.2g} points of all links; noise is ±{200 * p.noise:.2g} (2 σ).{drawn}</figcaption></figure>"
    )


def _weak(model: Model, found: Fidelity) -> str:
    lines: list[str] = []
    for r in found.relations:
        if r.verdict == "random":
            lines.append(
                f"{r.name}: links are wired at random within the degrees, so the copy says nothing about which rows go together."
            )
        elif r.verdict == "weak" and r.shown_at is None:
            tried = (
                f"{len(r.pairs)} pairs of columns were measured across it and none stands"
                if r.pairs
                else "no pair of columns was found that stands"
            )
            lines.append(
                f"{r.name}: {tried} {STANDS_OUT:g} σ out of the noise; links follow the measured columns of each side alone."
            )
    for t in found.tables:
        for c in t.columns:
            shares = c.measured_shares
            wide = float(c.band.max(initial=0.0))
            if shares is not None and wide > 0.5 * float(np.abs(shares).max(initial=0.0)):
                lines.append(
                    f"{t.name}.{c.name}: the error band (± {percent(wide)}) is wide against the shares it measures."
                )
        if t.measured_rows is not None and t.rows_sigma and t.measured_rows < 10 * t.rows_sigma:
            lines.append(
                f"{t.name}: about {t.measured_rows:,.0f} rows, measured with noise of σ = {t.rows_sigma:,.1f}; small tables are hard to copy."
            )
    lines += [
        f"{d.table}.{d.column}: values with a noisy count below {d.threshold:,} are not named and appear as “(other)”."
        for d in model.release.discovered
    ]
    if not lines:
        return '<div class="card"><p>Nowhere: every measurement stands clearly out of its noise.</p></div>'
    items = "".join(f"<li>{escape(x)}</li>" for x in lines)
    return (
        '<div class="card"><p>Noise hides people, and it hides weak patterns too. Do not draw conclusions from the copy here:</p>'
        f'<ul class="plain">{items}</ul></div>'
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
        f'<div class="card"><p>{len(c.events):,} questions were charged before they were answered. Costs add up for each protected table; '
        f"the promise is the largest of them.</p><ul class='plain'>{totals}</ul><details><summary>The ledger of this run</summary>{made}</details></div>"
    )


def _brief(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _words() -> str:
    words = {
        "Copy": "The synthetic database: as many rows as were measured, none of which belongs to anybody.",
        "Differential privacy": "A promise that what is published would have looked almost the same without any one protected row and all that belongs to it.",
        "ε (epsilon), δ (delta)": "How strong the promise is. Smaller is stronger. ε bounds how much odds can shift; δ is the small chance that this bound is passed.",
        "Protected, owned, public": "The promise is about rows of protected tables. Owned tables belong to them and are covered with them. Public tables are copied as they are.",
        "Noisy measurement": "A count of the original with random noise on it, the only thing that ever left the original. σ is the size of the noise.",
        "Error band": "The measurement plus and minus 2 σ. The true value lies inside it 95 times out of 100.",
        "Degree": "How many rows of one table lead to one row of another: orders per customer.",
        "Stands out": f"A dependence that is {STANDS_OUT:g} standard deviations stronger than noise alone would make it look.",
        "ρ (rho)": "The unit in which questions are charged (zero-concentrated differential privacy). It adds up, and converts to ε and δ at the end.",
    }
    return (
        '<div class="card"><dl class="words">'
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in words.items())
        + "</dl></div>"
    )
