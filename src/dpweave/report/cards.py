"""The cards of the report: tables with their columns, relations with degrees and heat maps."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dpweave.report import svg_figures
from dpweave.report.html_page import table
from dpweave.report.svg_figures import percent

if TYPE_CHECKING:
    from dpweave.report.fidelity import Fidelity, RelationView, TableView
    from dpweave.report.noisy_estimates import Distribution, Pair
    from dpweave.report.unit_views import Transition, UnitsView

MOST_NUMBERS = 40
"""Rows of the tables of numbers under a plot."""
MOST_HEAT_MAPS = 3
"""Pairs drawn for one relation, fewer where there are so many relations that all together would pass the next figure.
"""
MOST_HEAT_MAPS_IN_ALL = 48
MOST_SEEN = 6


LEGEND = (
    '<ul class="legend" aria-label="Legend"><li><svg viewBox="0 0 34 12" aria-hidden="true"><rect class="synthetic"'
    ' x="2" y="1" width="30" height="10" rx="2"/></svg>the copy</li><li><svg viewBox="0 0 34 12"'
    ' aria-hidden="true"><rect class="bandfill" x="4" y="0" width="26" height="12"/><circle class="dot" cx="17" cy="6"'
    ' r="3.2"/></svg>noisy measurement of the original, with its error band (± 2 σ, 95 %)</li></ul>'
)


def tables_section(found: Fidelity) -> str:
    """Return every table with a plot for each column."""
    intro = (
        "<p>For every column: the share of rows with each value. Bars are the copy; dots are what was measured through"
        " the noise, and the true share lies within the band around the dot 95 times out of 100. A value agrees where"
        " the gap between bar and dot is no wider than the chance of measuring and of drawing rows makes it 95 times"
        " out of 100. Where a band is wider than the share itself, anything agrees, and the measurement is too noisy"
        " to tell.</p>"
    )
    return intro + LEGEND + "".join(_one_table(t) for t in found.tables)


def _one_table(view: TableView) -> str:
    size = f"{view.rows:,} rows in the copy"
    if view.measured_rows is not None:
        band = f" ± {2 * view.rows_sigma:,.0f}" if view.rows_sigma else ""
        size += f"; measured {view.measured_rows:,.0f}{band} within the bounds"
    if view.public_rows is not None:
        size += f"; {view.public_rows:,} declared public, not measured"
    elif view.used_rows is not None and (view.measured_rows is None or abs(view.used_rows - view.measured_rows) >= 0.5):
        size += f"; {view.used_rows:,.0f} used, by all counts and what the plan declares"
    how = f", fitted by {escape(view.mechanism)}" if view.mechanism else ""
    plots = "".join(_column(c) for c in view.columns)
    rest = "".join(f"<li><code>{escape(n)}</code>: {escape(why)}</li>" for n, why in view.unmodelled)
    body = (
        f'<div class="cards">{plots}</div>' if plots else "<p class='soft'>No column of this table is modelled.</p>"
    ) + (
        f"<details><summary>{len(view.unmodelled)} columns without a plot</summary><ul"
        f" class='plain'>{rest}</ul></details>"
        if rest
        else ""
    )
    opened = "" if view.role == "public" else " open"
    return (
        f'<div class="card"><details class="table"{opened}><summary><h3>{escape(view.name)}</h3> <span class="badge'
        f' {view.role}">{view.role}</span> <span class="soft">{size}{how}</span></summary>{body}</details></div>'
    )


def _column(d: Distribution) -> str:
    drawn = len(
        svg_figures.shown_codes(d, svg_figures.MOST_COLUMNS if svg_figures.is_histogram(d) else svg_figures.MOST_BARS)
    )
    left_out = f" The {drawn} commonest of {d.last:,} values are drawn." if drawn < d.last else ""
    beyond = " Larger numbers do not occur." if d.last < len(d.labels) else ""
    agreed = "" if d.measured_shares is None else svg_figures.agreement(d)
    return (
        f'<figure><div class="head"><h4>{escape(d.name)}</h4><span class="unit">{escape(d.kind)}</span></div>'
        f"{svg_figures.plot(d)}<figcaption>{agreed}{left_out}{beyond}</figcaption>{_numbers(d)}</figure>"
    )


def _numbers(d: Distribution) -> str:
    codes = svg_figures.shown_codes(d, MOST_NUMBERS)
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


def relations_section(found: Fidelity) -> str:
    """Return every foreign key with its degrees and heat maps of what goes together across it."""
    if not found.relations:
        return '<div class="card"><p>The private tables have no foreign keys.</p></div>'
    intro = (
        "<p>For every foreign key: how many rows lead to one row of the other table, and which values go together"
        " across the key. In the heat maps orange is commoner than if the two columns had nothing to do with each"
        " other, blue is rarer. The left map is what was measured, noise included; the right one is the copy.</p>"
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
        f"<p class='soft'>{escape(r.role)} key, {escape(r.kind)}. {linked} of the rows of {escape(r.table)} lead to a"
        f" row of {escape(r.target)}{measured}. Links are {word}: {why}.{other}</p>"
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
        left_out = (
            f"<details><summary>{min(len(r.pairs), MOST_NUMBERS)} of {len(r.pairs)} measured pairs as a"
            f" table</summary>{made}</details>"
        )
    return (
        f'<div class="card"><details class="table" open><summary><h3>{escape(r.name)}</h3> <span class="badge'
        f' {colour}">{word}</span></summary>{facts}<div class="cards">{_column(r.degrees)}{seen}</div>{hidden}'
        + (
            f'<h4 style="margin:1rem 0 .5rem">Which values go together</h4><div class="cards wide">{maps}</div>'
            if maps
            else ""
        )
        + f"{left_out}{'' if r.units is None else _units(r.name, r.units)}</details></div>"
    )


def _units(name: str, found: UnitsView) -> str:
    """What rows of one owner have in common, and in what order they come."""
    rows = [
        (a.column, f"{100 * a.copy:+.2f}", f"{100 * a.measured:+.2f}", f"± {100 * a.band:.2f}")
        for a in sorted(found.agreements, key=lambda a: -a.measured)
    ]
    made = table(
        f"What rows of one owner have in common by {name}, as the question that was asked says it",
        ["column", "copy", "measured", "band"],
        rows,
        numeric=(1, 2, 3),
    )
    common = (
        '<h4 style="margin:1rem 0 .5rem">What rows of one owner have in common</h4><p class="soft">For each'
        " column: 0 is what rows of any owners have in common, more is more. Vectors of owners are cut to one length"
        " where they are measured, the copy's as the original's. So figures are several times smaller than how much"
        " more often two rows agree: compare the copy with what was measured, and ask dpweave evaluate for the plain"
        f" share.</p>{made}"
        if rows
        else ""
    )
    if found.order_by is None:
        return common
    gaps = "" if found.gaps is None else f'<div class="cards">{_column(found.gaps)}</div>'
    maps = "".join(_transition(t) for t in found.transitions[:MOST_HEAT_MAPS])
    return (
        f'{common}<h4 style="margin:1rem 0 .5rem">In what order they come, by {escape(found.order_by)}</h4>{gaps}'
        f'<div class="cards wide">{maps}</div>'
    )


def _transition(t: Transition) -> str:
    measured, copy, most = svg_figures.transition_maps(t)
    return (
        f'<figure><div class="head"><h4>{escape(t.column)}, after that of the row before</h4></div><div'
        f' class="maps"><div><span class="unit">measured</span>{measured}</div><div><span'
        f' class="unit">copy</span>{copy}</div></div><figcaption>Down: the row before. Full colour is'
        f" ±{100 * most:.2g} points of all rows; noise is ±{200 * t.noise:.2g} (2 σ).</figcaption></figure>"
    )


def _capped(evidence: float) -> str:
    return "more than 99" if evidence > 99 else f"{evidence:.1f}"


def _pair(p: Pair) -> str:
    measured, copy, most = svg_figures.heat_maps(p)
    drawn = (
        ""
        if max(p.synthetic.shape) <= svg_figures.MOST_CELLS
        else f" The {svg_figures.MOST_CELLS} commonest values of each column are drawn."
    )
    verdict = (
        f"Stands {_capped(p.evidence)} σ out of the noise; the copy keeps {p.kept:.2f} of it (1 is all, 0 is random"
        " wiring)."
        if p.stands_out
        else "Cannot be told from noise."
    )
    scale = (
        f"Full colour is ±{100 * most:.2g} points of all links; noise is ±{200 * p.noise:.2g} (2 σ)."
        if 2 * p.noise <= 1
        else "Noise (2 σ) is larger than the number of links that was measured."
    )
    return (
        f'<figure><div class="head"><h4>{escape(p.left)} × {escape(p.right)}</h4></div><div class="maps"><div><span'
        f' class="unit">measured</span>{measured}</div><div><span'
        f' class="unit">copy</span>{copy}</div></div><figcaption>{verdict} {scale}{drawn}</figcaption></figure>'
    )
