"""What a copy is worth, table by table and key by key, and what to change first: before a fit and after it.

Both ways of working it out end in the same figure (:mod:`dpweave.measure.expected_error`) and the same words, so that
what was predicted can be compared with what was found. Before a fit the plan alone is known: values are taken as evenly
spread, nulls as likely as values, and sizes as declared. After it noise, shares of values, sizes and domains are those
of the release.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.budget.allocation import allocate
from dpweave.errors import DpweaveError
from dpweave.explain.forecast import predictions
from dpweave.measure.expected_error import noise_error, word
from dpweave.plan.explanation import Judged, Verdict
from dpweave.schema.domain import Bins, Categories, to_axis
from dpweave.tables.owned_row_counts import Rows, with_declared

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.budget.allocation import Allocation
    from dpweave.model.model import Model
    from dpweave.plan.compiled import CompiledTable
    from dpweave.plan.entries import ColumnPlan, TablePlan
    from dpweave.plan.explanation import Learned, Spending
    from dpweave.plan.plan import Plan
    from dpweave.plan.relations import Relation

MOST_ADVICE = 3
DOUBLINGS = 5
"""Up to so many doublings of epsilon are tried for advice: beyond 32 times what is asked nobody would go."""
WORST = 1.0
"""Error of a column whose domain was not learned: where its values lie means nothing."""


# -- before a fit ------------------------------------------------------------------------------------------------------


def predicted(plan: Plan, allocation: Allocation, judged: Sequence[Judged], *, enough: float | None = None) -> Verdict:
    """What a copy by ``plan`` should be worth, whose tables are ``judged``.

    Advice names an epsilon that is ``enough``.
    """
    declared = {t.name: float(t.rows) for t in plan.tables if t.rows is not None}
    return _verdict(plan, judged, _pairs_lost(plan, allocation), epsilon=enough, rows=declared)


def enough_epsilon(
    judged: Sequence[Judged], tables: Callable[[float], Sequence[Judged]], epsilon: float
) -> float | None:
    """The epsilon at which half of the tables that are not useful would be, as a multiple by two of what is asked.

    More epsilon never makes a table worse, so the multiple is found by halving; ``tables`` judges them for any epsilon.
    """
    lost = {j.name for j in judged if j.word != "useful"}

    def helps(times: float) -> bool:
        return 2 * sum(j.word == "useful" for j in tables(times * epsilon) if j.name in lost) >= len(lost)

    multiples = [2.0**i for i in range(1, DOUBLINGS + 1)]
    if not lost or not helps(multiples[-1]):
        return None
    return multiples[bisect_left(multiples[:-1], True, key=helps)] * epsilon


def _pairs_lost(plan: Plan, allocation: Allocation) -> dict[tuple[str, str], float]:
    """Expected total variation of pairs of columns across each key that is learned, from its links alone."""
    relations = predictions(plan.compile(), allocation, k=2, bounds=False)
    return {(r.table, r.key): p.links.learned / 200 for r, p in relations.items()}


def predicted_table(table: CompiledTable, budget: Sequence[Spending], learned: Sequence[Learned]) -> Judged:
    """What a private table of a copy should be worth, by what is spent on it and about how many rows it has."""
    name, rows, owners = table.name, table.seen_rows, table.seen_units
    noise = {(s.group, s.item): s.sigma or 0.0 for s in budget if s.table == name}
    short = {item.column.removeprefix(f"{name}."): item for item in learned if item.column.startswith(f"{name}.")}
    errors, unlearned = [], []
    even: dict[tuple[int, bool], float] = {}  # columns of a table have the same noise, and few sizes
    for column in _own(table):
        at = codes, nullable = table.codes(column), table.planned.column[column].column.nullable
        shares = _guessed_shares(codes, nullable=nullable)
        there = float(shares[:-1].sum()) if nullable else 1.0
        missed = there * _to_be_missed(short[column], there * rows, owners=owners) if column in short else 0.0
        if missed > chosen.USEFUL:
            unlearned.append(column)
        if at not in even:
            even[at] = noise_error(shares, sigma=noise.get(("tables", ""), 0.0), rows=rows)
        errors.append(min(missed + even[at], WORST))
    return _judged(table, errors, rows=rows, sigma=noise.get(("sizes", ""), 0.0), unlearned=unlearned)


def _guessed_shares(codes: int, *, nullable: bool) -> FloatArray:
    """Values evenly spread. Of nulls, which come last, nothing is known: a null is as likely as a value.

    >>> _guessed_shares(4, nullable=False).tolist(), _guessed_shares(3, nullable=True).tolist()
    ([0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.5])
    """
    if not nullable or codes < 2:
        return np.full(codes, 1 / codes)
    return np.append(np.full(codes - 1, 1 / (codes - 1)), 1.0) / 2


def _to_be_missed(item: Learned, rows: float, *, owners: float) -> float:
    """Part of the rows of which a learned domain will not tell where they lie (:func:`_missed`).

    Categories are taken to be as common as one over their rank, for every owner. Ranges are learned well, coarsely
    or not; a coarse one makes a column coarse, and noise comes on top.
    """
    if item.threshold is None:
        return 0.0
    if item.kind == "categories":
        shares = 1 / np.arange(1, chosen.UNKNOWN_CATEGORIES + 1)
        shares /= shares.sum()
        have = 1 - (1 - shares) ** max(rows / owners, 1.0)  # share of owners with a category, among others
        counts = owners * have / math.sqrt(have.sum()) if item.by_unit else rows * shares
        return float(shares[counts < item.threshold].sum())
    coarse = (chosen.USEFUL + chosen.COARSE) / 2
    hidden = chosen.USEFUL * item.threshold  # rows that noise hides
    return 0.0 if rows >= item.threshold else coarse if rows > chosen.BEYOND_DOUBT * hidden else WORST


# -- after a fit -------------------------------------------------------------------------------------------------------


def found(model: Model, noise: Mapping[tuple[str, str], float]) -> Verdict:
    """What copies of a model are worth. ``noise`` is that of the released counts of each table's columns."""
    tables = [_found_table(model, name, noise) for name in model.plan.promise.private]
    return _verdict(model.plan, tables, _links_lost(model), hidden=_hidden(model), rows=model.sizes)


def _links_lost(model: Model) -> dict[tuple[str, str], float]:
    """Predict links again, from noisy sizes and learned domains, for what was spent.

    Noise may make sizes that no plan would be allowed to declare, and little may have been spent beside tables made
    elsewhere. Then nothing is known of links, and a verdict is given all the same: the fit is paid for.
    """
    plan, certificate = model.plan, model.certificate
    try:
        sized = replace(plan, tables=tuple(_sized(plan, model, name) for name in plan.database.names))
        return _pairs_lost(sized, allocate(sized, epsilon=certificate.epsilon, delta=certificate.delta))
    except DpweaveError:
        return {}


def _sized(plan: Plan, model: Model, name: str) -> TablePlan:
    table = plan.table[name]
    return table if name in plan.public or table.public_rows else replace(table, rows=max(round(model.sizes[name]), 1))


def _found_table(model: Model, name: str, noise: Mapping[tuple[str, str], float]) -> Judged:
    table, fitted, rows = model.plan.compile().table[name], model.tables.get(name), model.sizes[name]
    planned = table.planned
    errors, unlearned = [], []
    discovered = {d.column for d in model.release.discovered if d.table == name}
    for column in _own(table):
        counts = np.zeros(1) if fitted is None else np.maximum(fitted.marginal((column,)).ravel(), 0.0)
        shares = counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
        missed = _missed(planned.column.get(column), shares, is_discovered=column in discovered)
        if missed > chosen.USEFUL:
            unlearned.append(column)
        errors.append(min(missed + noise_error(shares, sigma=noise.get((name, column), 0.0), rows=rows), WORST))
    size = next((m.marginal.sigma for m in model.release.measured if m.what == f"sizes:{name}"), 0.0)
    return _judged(table, errors, rows=rows, sigma=size, unlearned=unlearned)


def _missed(column: ColumnPlan | None, shares: FloatArray, *, is_discovered: bool) -> float:
    """Part of a column's rows of which it is not known where they lie: in no category that was found, or out of range.

    Of a coarse range nothing is known within a cell: two rows share one as often as the sum of squared shares says.
    The same holds of a cell that has most rows of a range that was learned well. Where a cell has one value, nothing
    more is to be known, and rows without a value are known to have none.
    """
    domain = None if column is None else column.domain
    if is_discovered and isinstance(domain, Categories):
        return float(shares[len(domain.values)])
    if column is None or not isinstance(domain, Bins) or domain.learned is None:
        return 0.0
    cells = shares[: domain.cells]
    there = float(cells.sum())
    if domain.learned == "not" or there <= 0:
        return there * WORST
    kind = column.column.type
    wide = np.array(
        [kind.kind == "float" or to_axis(kind, b) - to_axis(kind, a) > 1 for a, b in pairwise(domain.edges)]
    )
    unknown = wide if domain.learned == "coarse" else wide & (cells > there / 2)
    return float((cells[unknown] ** 2).sum()) / there


def _hidden(model: Model) -> Mapping[tuple[str, str], float]:
    """Share of rows that the bound of an owning key hides, by what degrees tell."""
    whole = model.blueprint.expected_rows(1.0)
    out = {}
    for table, key in model.plan.promise.owning.items():
        seen = model.sizes[table]
        if seen > 0 and whole[table] > seen and model.blueprint.only_total(table, key) is None:
            out[table, key] = 1 - seen / whole[table]
    return out


# -- both --------------------------------------------------------------------------------------------------------------


def _own(table: CompiledTable) -> tuple[str, ...]:
    """Columns that a table is judged by: its own. How many rows its rows own, and which keys are null, is not what a
    reader of the table asks first, and mostly well known: beside it a column that is lost would not be noticed.
    """
    return tuple(c for c in table.measured_columns if c in table.planned.column)


def _judged(
    table: CompiledTable, errors: Sequence[float], *, rows: float, sigma: float, unlearned: Sequence[str]
) -> Judged:
    """Judge a table by its columns. A size that drowns in noise makes it coarse at best; without columns it is all."""
    planned = table.planned
    if planned.public_rows is not None:
        rows, sigma = float(planned.public_rows), 0.0
    elif planned.rows is not None:
        sigma = with_declared(Rows(rows, sigma), table.seen_rows).sigma
    off = min(math.sqrt(2 / math.pi) * sigma / max(rows, 1.0), WORST)
    error = max(float(np.mean(errors)), min(off, chosen.COARSE)) if errors else off
    return Judged("table", table.name, word(error), error, rows, 2 * sigma or None, tuple(unlearned))


def _verdict(
    plan: Plan,
    tables: Sequence[Judged],
    links: Mapping[tuple[str, str], float],
    *,
    epsilon: float | None = None,
    hidden: Mapping[tuple[str, str], float] | None = None,
    rows: Mapping[str, float] | None = None,
) -> Verdict:
    by_name = {j.name: j for j in tables}
    # Of links that are wired at random, pairs of columns show nothing but that.
    crossed = [
        _relation(r, links.get((r.table, r.key), WORST), by_name) for r in plan.compile().relations if all(r.varying)
    ]
    judged = (*tables, *crossed)
    return Verdict(judged, tuple(_advice(plan, tables, judged, epsilon, hidden or {}, rows or {})))


def _relation(relation: Relation, lost: float, tables: Mapping[str, Judged]) -> Judged:
    """Judge pairs of columns across a key: what links lose comes on top of what the tables themselves have lost."""
    target = relation.target
    sides = [tables[t].error for t in (relation.table, target) if t in tables]
    error = min(lost + max(sides, default=0.0), 1.0)
    return Judged("relation", f"{relation.table}.{relation.key} → {target}", word(error), error)


def _bare(plan: Plan, tables: Sequence[Judged]) -> Iterable[tuple[float, str]]:
    """Owning keys that may be null, above tables that are not useful: noise there hides all that a unit may own."""
    lost = [j.name for j in tables if j.error > chosen.USEFUL]
    for table, name in plan.promise.owning.items():
        key = plan.database[table].key[name]
        below = [n for n in lost if (table, name) in plan.promise.chain(n)]
        if below and plan.database[table].is_nullable(key):
            text = (
                f"Say nullable = false of {' and '.join(key.columns)} in {table}, if each of its rows has its row of"
                f" {key.target}: then no row of a copy is without, and noise in {', '.join(below)} is usually less."
            )
            yield float(sum(len(plan.table[n].columns) for n in below)), text


def _without_room(
    plan: Plan, rows: Mapping[str, float], *, but: Collection[tuple[str, str]]
) -> Iterable[tuple[float, str]]:
    """Keys whose bounds leave many rows no place: those that link come out as nulls, and others are not counted."""
    for table in (plan.table[n] for n in plan.promise.private if n in rows):
        for planned in table.keys:
            key, bound = planned.key, planned.max_degree
            if bound is None or key.target not in rows or (table.name, key.name) in but:
                continue
            room, wanted = bound * rows[key.target], rows[table.name]
            if 1 - room / max(wanted, 1.0) > chosen.COARSE and (planned.degree_cap or math.inf) > bound:
                lost = "Most others lead nowhere in a copy" if planned.role == "linking" else "Others are not counted"
                text = (
                    f"Raise max_degree = {bound:,} of {table.name}.{key.name}: {rows[key.target]:,.0f} rows of"
                    f" {key.target} with {bound:,} each have room for {room:,.0f} of {wanted:,.0f} rows. {lost}."
                )
                yield (1 - room / wanted) * (len(table.columns) + 1), text


def _shared(plan: Plan, tables: Sequence[Judged]) -> Iterable[tuple[float, str]]:
    """Keys by which a unit shares more rows of a table that is not useful than one that owns them has."""
    for name in (j.name for j in tables if j.error > chosen.USEFUL):
        owned = plan.compile().table[name].owned_rows
        for planned in plan.table[name].keys:
            key, bound = f"{name}.{planned.key.name}", planned.max_degree or 0
            if planned.role == "shared" and bound > owned:
                text = (
                    f"Lower max_degree = {bound:,} of {key}, or let it link: noise in {name} hides all {bound:,} rows"
                    f" that a row of {planned.key.target} shares, where an owner has {owned:,}. With role = 'linking'"
                    " it hides which of them are whose, and no longer what they say."
                )
                yield float(len(plan.table[name].columns) + 1), text


def _advice(
    plan: Plan,
    tables: Sequence[Judged],
    judged: Sequence[Judged],
    epsilon: float | None,
    hidden: Mapping[tuple[str, str], float],
    rows: Mapping[str, float],
) -> Iterable[str]:
    """What to change first: by how many columns each change would help."""
    found: list[tuple[float, str]] = []
    unlearned = [f"{j.name}.{c}" for j in tables for c in j.unlearned]
    if unlearned:
        named = ", ".join(unlearned[:6]) + (f" and {len(unlearned) - 6} more" if len(unlearned) > 6 else "")
        found.append((float(len(unlearned)), f"Declare the domains of {named}: noise hides them."))
    for (table, key), share in hidden.items():
        bound, cap = plan.promise.bounds[table, key], plan.table[table].key[key].degree_cap
        if share > chosen.COARSE and (cap is None or bound < cap):
            text = (
                f"Raise max_degree = {bound:,} of {table}.{key}: it hides about {share:.0%} of the rows. What they"
                " are like is guessed from the others."
            )
            found.append((share * len(plan.table[table].columns), text))
    found += _without_room(plan, rows, but=hidden)
    found += _bare(plan, tables)
    found += _shared(plan, tables)
    lost = [j for j in judged if j.error > chosen.USEFUL]
    if lost:
        names = ", ".join(j.name for j in sorted(lost, key=lambda j: -j.error)[:4])
        what = f"{names} and {len(lost) - 4} more" if len(lost) > 4 else names
        enough = "" if epsilon is None else f" At epsilon {epsilon:g} half of the tables among them would be."
        text = (
            f"Ask for less or spend more: {what} {'are' if len(lost) > 1 else 'is'} not useful at this epsilon.{enough}"
            " Fewer columns, fewer bins, larger weights or public sizes cost nothing."
        )
        found.append((0.5 * len(lost), text))
    yield from (text for _, text in sorted(found, key=lambda f: -f[0])[:MOST_ADVICE])
