"""Inline SVG: bars with error bands, histograms, heat maps, the schema. Colours come from the page's style sheet."""

from __future__ import annotations

import itertools
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from dpweave.schema.key_graph import KeyGraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.plan.plan import Plan
    from dpweave.report.noisy_estimates import Distribution, Pair
    from dpweave.report.unit_views import Transition

MOST_BARS = 16
MOST_COLUMNS = 64
MOST_CELLS = 16
FAINTEST = 0.02
"""Part of full colour below which a cell is left blank."""
WIDTH = 320
_ids = itertools.count()


def percent(share: float) -> str:
    """Write a share as a percentage with about three digits.

    >>> percent(0.4567), percent(0.0123), percent(0.00004), percent(0.0)
    ('45.7 %', '1.23 %', '<0.01 %', '0 %')
    """
    value = 100 * share
    if value and abs(value) < 0.01:
        return "<0.01 %"
    return f"{value:.1f} %" if abs(value) >= 10 else f"{value:.3g} %"


def clipped(text: str, most: int) -> str:
    """Shorten a label that does not fit.

    >>> clipped("electronics", 6)
    'elect…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def svg(width: float, height: float, title: str, description: str, body: str) -> str:
    """Wrap drawing instructions, with a name and a description for those who do not see them."""
    n = next(_ids)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="t{n}" aria-describedby="d{n}">'
        f'<title id="t{n}">{escape(title)}</title><desc id="d{n}">{escape(description)}</desc>{body}</svg>'
    )


def shown_codes(distribution: Distribution, most: int) -> list[int]:
    """Codes to draw: all but an empty end, or the commonest in their order."""
    count = distribution.last
    if count <= most:
        return list(range(count))
    weight = distribution.synthetic_shares[:count]
    if distribution.measured_shares is not None:
        weight = np.maximum(weight, distribution.measured_shares[:count])
    return sorted(np.argsort(-weight, kind="stable")[:most].tolist())


def agreement(distribution: Distribution) -> str:
    """Say on how many values copy and measurement agree; where noise is wider than a share, agreeing says nothing."""
    clear, agree = int(distribution.clear.sum()), int((distribution.agree & distribution.clear).sum())
    blurred = len(distribution.labels) - clear
    if not clear:
        return "Too noisy to tell: the error bands are wider than the shares themselves."
    words = f"{agree:,} of {clear:,} values agree with the measurement."
    return f"{words} Of {blurred:,} more it is too noisy to tell." if blurred else words


def describe(distribution: Distribution) -> str:
    """Say in words what the plot shows."""
    if not distribution.synthetic.sum():
        return "The copy has no rows here."
    top = int(np.argmax(distribution.synthetic))
    text = f"Commonest in the copy: {distribution.labels[top]}, {percent(distribution.synthetic_shares[top])}."
    shares = distribution.measured_shares
    if shares is None:
        return text
    gap = np.abs(shares - distribution.synthetic_shares)
    worst = int(np.argmax(gap))
    return (
        f"{text} {agreement(distribution)} "
        f"The largest gap is {100 * gap[worst]:.2g} percentage points, at {distribution.labels[worst]}."
    )


def _top(distribution: Distribution, codes: Sequence[int]) -> float:
    """Where the axis ends: bands may leave the picture, values may not."""
    highest = float(distribution.synthetic_shares[codes].max(initial=0.0))
    shares = distribution.measured_shares
    if shares is not None:
        highest = max(highest, float(shares[codes].max(initial=0.0)))
        highest = max(highest, min(highest + float(distribution.band[codes].max(initial=0.0)), 1.6 * highest))
    return highest or 1.0


def plot(distribution: Distribution) -> str:
    """Draw a distribution: columns for ordered codes, bars for categories."""
    if is_histogram(distribution):
        return histogram(distribution)
    return bars(distribution)


def is_histogram(distribution: Distribution) -> bool:
    """Whether a distribution is drawn as columns side by side."""
    return distribution.ordered and distribution.last > 6


def bars(distribution: Distribution) -> str:
    """Draw one bar per value for the copy; a dot with a band for the noisy measurement."""
    codes = shown_codes(distribution, MOST_BARS)
    left, right, row = 104, 52, 20
    span = WIDTH - left - right
    scale = span / _top(distribution, codes)
    shares, parts = distribution.measured_shares, []
    for i, code in enumerate(codes):
        y = i * row
        share = float(distribution.synthetic_shares[code])
        label = distribution.labels[code]
        parts.append(
            f'<text x="{left - 6}" y="{y + 14}"'
            f' text-anchor="end"><title>{escape(label)}</title>{escape(clipped(label, 17))}</text><rect'
            f' class="synthetic" x="{left}" y="{y + 4}" width="{share * scale:.1f}" height="12" rx="2"/>'
        )
        if shares is not None:
            parts.append(_mark_across(left, y + 10, float(shares[code]), float(distribution.band[code]), scale, span))
        parts.append(f'<text class="faint" x="{WIDTH}" y="{y + 14}" text-anchor="end">{percent(share)}</text>')
    parts.append(f'<line class="axis" x1="{left}" y1="0" x2="{left}" y2="{len(codes) * row}"/>')
    return svg(WIDTH, max(len(codes) * row, row), distribution.name, describe(distribution), "".join(parts))


def _mark_across(left: float, y: float, share: float, band: float, scale: float, span: float) -> str:
    low, high = (float(np.clip(v * scale, 0, span)) for v in (share - band, share + band))
    at = float(np.clip(share * scale, 0, span))
    return (
        f'<rect class="bandfill" x="{left + low:.1f}" y="{y - 8}" width="{max(high - low, 0):.1f}" height="16"/>'
        f'<circle class="dot" cx="{left + at:.1f}" cy="{y}" r="3.2"/>'
    )


def histogram(distribution: Distribution) -> str:
    """Draw one column per bin for the copy; a dot with a band for the noisy measurement."""
    codes = shown_codes(distribution, MOST_COLUMNS)
    left, height, foot = 46, 130, 22
    width = (WIDTH - left) / len(codes)
    top = _top(distribution, codes)
    scale = (height - 8) / top
    shares, parts = distribution.measured_shares, []
    parts.append(
        f'<text class="faint" x="{left - 4}" y="12" text-anchor="end">{percent(top)}</text>'
        f'<text class="faint" x="{left - 4}" y="{height}" text-anchor="end">0</text>'
        f'<line class="axis" x1="{left}" y1="{height}" x2="{WIDTH}" y2="{height}"/>'
    )
    for i, code in enumerate(codes):
        x, share = left + i * width, float(distribution.synthetic_shares[code])
        tip = f"{distribution.labels[code]}: {percent(share)} of the copy"
        parts.append(
            f'<rect class="synthetic" x="{x + width * 0.08:.1f}" y="{height - share * scale:.1f}"'
            f' width="{width * 0.84:.1f}" height="{share * scale:.1f}"><title>{escape(tip)}</title></rect>'
        )
        if shares is not None:
            low, high = (
                float(np.clip(v * scale, 0, height - 1))
                for v in (shares[code] - distribution.band[code], shares[code] + distribution.band[code])
            )
            at = float(np.clip(shares[code] * scale, 0, height - 1))
            parts.append(
                f'<rect class="bandfill" x="{x + width * 0.02:.1f}" y="{height - high:.1f}" width="{width * 0.96:.1f}"'
                f' height="{max(high - low, 0):.1f}"/><circle class="dot" cx="{x + width / 2:.1f}"'
                f' cy="{height - at:.1f}" r="{min(3.0, width * 0.4):.1f}"/>'
            )
    parts += _ticks([distribution.labels[c] for c in codes], left, width, height + 15)
    return svg(WIDTH, height + foot, distribution.name, describe(distribution), "".join(parts))


def _ticks(words: Sequence[str], left: float, width: float, y: float) -> Iterator[str]:
    """Name the first, some middle and the last column, as far as they fit."""
    last = len(words) - 1
    room = len(words) * width
    longest = max(len(w) for w in words)
    many = max(2, min(5, int(room / (6.5 * min(longest, 16) + 14))))
    for i in sorted({round(last * j / (many - 1)) for j in range(many)}):
        anchor = "start" if i == 0 else "end" if i == last else "middle"
        x = left + (i + {"start": 0, "middle": 0.5, "end": 1}[anchor]) * width
        yield f'<text class="faint" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(clipped(words[i], 16))}</text>'


# -- heat maps ---------------------------------------------------------------------------------------------------------


def heat_maps(pair: Pair) -> tuple[str, str, float]:
    """Draw the measured and the synthetic excess on one colour scale; return both drawings and the scale's end."""
    rows = _busiest(pair.synthetic.sum(axis=1) + np.maximum(pair.measured.counts.sum(axis=1), 0))
    columns = _busiest(pair.synthetic.sum(axis=0) + np.maximum(pair.measured.counts.sum(axis=0), 0))
    maps = [x[np.ix_(rows, columns)] for x in (pair.measured_excess, pair.synthetic_excess)]
    words = [pair.left_labels[i] for i in rows], [pair.right_labels[j] for j in columns]
    return _both_maps(f"{pair.left} by {pair.right}", maps[0], maps[1], words, pair.noise)


def transition_maps(t: Transition) -> tuple[str, str, float]:
    """Draw what comes after what, measured and in the copy, in the same way."""
    most = np.maximum(np.abs(t.measured), np.abs(t.copy))
    rows, columns = (_busiest(most.max(axis=axis)) for axis in (1, 0))
    words = [t.before[i] for i in rows], [t.after[j] for j in columns]
    one, two = (x[np.ix_(rows, columns)] for x in (t.measured, t.copy))
    return _both_maps(f"{t.column} of the row before by {t.column}", one, two, words, t.noise)


def _both_maps(
    title: str, measured: FloatArray, copy: FloatArray, words: tuple[list[str], list[str]], noise: float
) -> tuple[str, str, float]:
    most = max(float(np.abs(copy).max(initial=0.0)), float(np.abs(measured).max(initial=0.0)), 2 * noise, 1e-9)
    drawn = [
        _heat_map(f"{what}: {title}", m, words[0], words[1], most)
        for what, m in (("Measured", measured), ("Copy", copy))
    ]
    return drawn[0], drawn[1], most


def _busiest(weight: FloatArray) -> list[int]:
    return sorted(np.argsort(-weight, kind="stable")[:MOST_CELLS].tolist())


def _heat_map(title: str, excess: FloatArray, rows: Sequence[str], columns: Sequence[str], most: float) -> str:
    left, foot = 84.0, 62.0
    cell = min(216.0 / len(columns), 28.0)
    width = max(left + len(columns) * cell + 4, 150.0)
    tall = max(min(cell, 22.0), 13.0)
    parts = []
    for i, j in np.ndindex(excess.shape):
        strength = min(abs(float(excess[i, j])) / most, 1.0)
        if strength < FAINTEST:
            continue
        tip = f"{rows[i]} × {columns[j]}: {100 * excess[i, j]:+.2g} points"
        parts.append(
            f'<rect class="{"more" if excess[i, j] > 0 else "less"}" x="{left + j * cell:.1f}" y="{i * tall:.1f}" '
            f'width="{cell:.1f}" height="{tall:.1f}" fill-opacity="{strength:.2f}"><title>{escape(tip)}</title></rect>'
        )
    bottom = len(rows) * tall
    parts.append(f'<rect class="cell" x="{left}" y="0" width="{len(columns) * cell:.1f}" height="{bottom:.1f}"/>')
    for i, word in enumerate(rows):
        parts.append(
            f'<text x="{left - 5}" y="{i * tall + tall / 2 + 4:.1f}"'
            f' text-anchor="end">{escape(clipped(word, 12))}</text>'
        )
    for j, word in enumerate(columns):
        x = left + (j + 0.5) * cell + 4
        parts.append(
            f'<text transform="translate({x:.1f} {bottom + 6:.1f}) rotate(-55)"'
            f' text-anchor="end">{escape(clipped(word, 11))}</text>'
        )
    row, column = divmod(int(np.argmax(excess)), excess.shape[1])
    words = (
        f"Most above independence: {rows[row]} with {columns[column]}, {100 * float(excess[row, column]):+.2g}"
        " percentage points of all links."
    )
    return f'<div style="max-width:{1.1 * width:.0f}px">{svg(width, bottom + foot, title, words, "".join(parts))}</div>'


# -- the schema --------------------------------------------------------------------------------------------------------

NODE, TALL, GAP, RISE = 150, 46, 24, 54


def schema(plan: Plan, rows: Mapping[str, int], *, across: int) -> str:
    """Draw tables as boxes, targets above the tables that lead to them, at most ``across`` in a row."""
    placed = _layout(plan, across)
    width = across * NODE + (across - 1) * GAP + 48
    height = max(y for _, y in placed.values()) + TALL + 14
    edges = [
        _edge(placed, table.name, key.key.target, key.role, _port(i, len(table.keys)))
        for table in plan.tables
        for i, key in enumerate(table.keys)
    ]
    nodes = [_node(plan, name, x, y, rows.get(name, 0)) for name, (x, y) in placed.items()]
    return svg(width, height, "Tables and foreign keys", describe_schema(plan), "".join(edges + nodes))


def role_of(plan: Plan, table: str) -> str:
    """Return a table's part in the promise."""
    return "public" if table in plan.public else "protected" if table in plan.protect else "owned"


def describe_schema(plan: Plan) -> str:
    """Say the drawing in words."""
    tables = "; ".join(f"{t.name} ({role_of(plan, t.name)})" for t in plan.tables)
    keys = "; ".join(
        f"{t.name} leads to {k.key.target} by {k.key.name} ({k.role})" for t in plan.tables for k in t.keys
    )
    return f"Tables: {tables}. Keys: {keys or 'none'}."


def _layout(plan: Plan, across: int) -> dict[str, tuple[float, float]]:
    level: dict[str, int] = {}
    for name in KeyGraph(plan.database).order():
        above = [level[k.target] for k in plan.database[name].foreign_keys if k.target in level]
        level[name] = max(above, default=-1) + 1
    wide = across * NODE + (across - 1) * GAP
    placed: dict[str, tuple[float, float]] = {}
    line = 0
    for depth in range(max(level.values()) + 1):
        names = [n for n in plan.database.names if level[n] == depth]

        def middle(name: str) -> float:
            found = [placed[k.target][0] for k in plan.database[name].foreign_keys if k.target in placed]
            return sum(found) / len(found) if found else wide / 2

        names.sort(key=middle)
        for start in range(0, len(names), across):
            row = names[start : start + across]
            used = len(row) * NODE + (len(row) - 1) * GAP
            for i, name in enumerate(row):
                placed[name] = (24 + (wide - used) / 2 + i * (NODE + GAP), 8 + line * (TALL + RISE))
            line += 1
    return placed


def _port(i: int, count: int) -> float:
    """Where along a box's upper side its i-th key leaves."""
    return NODE * (i + 1) / (count + 1)


def _node(plan: Plan, name: str, x: float, y: float, rows: int) -> str:
    role = role_of(plan, name)
    return (
        f'<g class="node {role}"><rect x="{x:g}" y="{y:g}" width="{NODE}" height="{TALL}" rx="8"/>'
        f'<text x="{x + NODE / 2:g}" y="{y + 19:g}"><title>{escape(name)}</title>{escape(clipped(name, 19))}</text>'
        f'<text class="sub" x="{x + NODE / 2:g}" y="{y + 36:g}">{role} · {rows:,} rows</text></g>'
    )


def _edge(placed: Mapping[str, tuple[float, float]], child: str, parent: str, role: str, port: float) -> str:
    (x1, y1), (x2, y2) = placed[child], placed[parent]
    if child == parent:
        x, y = x1 + NODE, y1 + TALL / 2
        head = f'<path class="head-{role}" d="M{x:g} {y + 8:g} l8 -4 v8 z"/>'
        return f'<path class="edge {role}" d="M{x:g} {y - 8:g} c24 -10 24 26 6 16"/>{head}'
    start = x1 + port
    if y2 < y1:
        end, foot = x2 + NODE / 2 + (port - NODE / 2) * 0.5, y2 + TALL
        bend = max((y1 - foot) / 2, 20)
        head = f'<path class="head-{role}" d="M{end:g} {foot:g} l-4.5 9 h9 z"/>'
        return (
            f'<path class="edge {role}" d="M{start:g} {y1:g} C{start:g} {y1 - bend:g} {end:g} {foot + bend:g} {end:g}'
            f' {foot + 7:g}"/>{head}'
        )
    end, low = x2 + NODE / 2 - 22, max(y1, y2) + TALL
    head = f'<path class="head-{role}" d="M{end:g} {y2 + TALL:g} l-4.5 9 h9 z"/>'
    begin = x1 + NODE / 2 + 22
    return (
        f'<path class="edge {role}" d="M{begin:g} {y1 + TALL:g} C{begin:g} {low + 34:g} {end:g} {low + 34:g} {end:g}'
        f' {y2 + TALL + 7:g}"/>{head}'
    )
