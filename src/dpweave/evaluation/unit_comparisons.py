"""Units as wholes, against real rows: what rows of one owner have in common, and in what order they come. NOT PRIVATE.

Real owners split in two halves, set against each other, show what chance alone makes of each figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpweave.evaluation import distances
from dpweave.evaluation.baselines import HALVES
from dpweave.evaluation.comparisons import REAL, Score, usable_columns
from dpweave.schema.arrow_codes import points
from dpweave.schema.key_lookup import column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.model.coded_database import CodedDatabase
    from dpweave.plan.plan import Plan

Mask = np.ndarray[Any, Any]

LEAST_EXCESS = 0.02
"""Columns are looked at on which rows of one owner agree so much more often than others."""
MOST_OWNERS = 20_000
"""Owners that questions are put to; of more, some are drawn."""
MOST_QUESTIONS = 1_000
MOST_CODES = 2_000
"""Codes of all columns together that tables of siblings are made of; columns with most codes are left out first."""
LEAST_SHARE = 0.01
"""Errors of questions are relative to the real share of owners, or to this where it is less."""

SIBLINGS = "sibling tables: total variation"
EXCESS = "excess agreement of siblings, kept"
QUESTIONS = "unit questions: median relative error"
TRANSITIONS = "transitions, kept"
GAPS = "gaps: Kolmogorov-Smirnov distance"
FIRST, LAST = "first per owner: Kolmogorov-Smirnov distance", "last per owner: Kolmogorov-Smirnov distance"
MEANING = {
    SIBLINGS: "tables of a column of one row and a column of another row of the same owner, mean over all pairs of"
    " columns; an owner counts by its rows; 0 is equal, 1 has nothing in common",
    EXCESS: "how much more often two rows of one owner have the same value than two of any owners, copy over real, mean"
    f" over columns where it is above {LEAST_EXCESS:g} in the real database; 1 keeps it all",
    QUESTIONS: "shares of owners with given values in one or two of their rows, and perhaps in a column of their own:"
    f" |a - b| / max(a, {LEAST_SHARE:g}), values drawn from real rows",
    TRANSITIONS: "association of a column with the same column of the row before, over all columns: 1 is all of it,"
    " 0 none",
    GAPS: "how far rows of one owner are from the row before",
    FIRST: "when the first row of each owner is",
    LAST: "when the last row of each owner is",
}


def unit_figures(
    plan: Plan,
    real: CodedDatabase,
    rivals: Mapping[str, CodedDatabase],
    times: Mapping[str, Mapping[tuple[str, str], FloatArray]],
    *,
    rng: np.random.Generator,
) -> list[Score]:
    """Compare units by every owning key. ``times`` are moments of ordered rows, of the real ones and of each rival."""
    out: list[Score] = []
    for table, key in plan.promise.owning.items():
        target = plan.database[table].key[key].target
        if target == table or not real.rows[table]:
            continue
        by = plan.table[table].key[key].order_by
        rows = {
            n: UnitRows.of(plan, d, table, key, times.get(n, {}).get((table, by or "")))
            for n, d in {REAL: real, **rivals}.items()
        }
        half = rng.random(real.rows[target]) < 0.5
        found = _figures(rows, rng)
        halves = _figures({REAL: rows[REAL].some(half), HALVES: rows[REAL].some(~half)}, rng)
        for name, value in found.items():
            out.append(Score(name, f"{table} of {target}", {**value, **halves.get(name, {})}, MEANING[name]))
    return out


def _figures(rows: Mapping[str, UnitRows], rng: np.random.Generator) -> dict[str, dict[str, float]]:
    real, rest = rows[REAL], {n: r for n, r in rows.items() if n != REAL}
    out: dict[str, dict[str, float]] = {}
    if real.blocks:
        pairs = {n: r.siblings() for n, r in rows.items()}
        if pairs[REAL].any():
            out[SIBLINGS] = {n: tables_apart(pairs[REAL], pairs[n], real.blocks) for n in rest}
            strong = [(b, e) for b in real.blocks if (e := real.excess(pairs[REAL], b)) > LEAST_EXCESS]
            if strong:
                out[EXCESS] = {
                    n: float(np.mean([r.excess(pairs[n], b) / e for b, e in strong])) for n, r in rest.items()
                }
        asked = questions(real, rng, most=MOST_QUESTIONS)
        if asked:
            drawn = {n: r.sampled(MOST_OWNERS, rng) for n, r in rows.items()}
            truth = np.array([drawn[REAL].answer(q) for q in asked])
            errors = {n: np.abs(truth - [drawn[n].answer(q) for q in asked]) for n in rest}
            out[QUESTIONS] = {n: float(np.median(e / np.maximum(truth, LEAST_SHARE))) for n, e in errors.items()}
    ordered = {n: r for n, r in rows.items() if r.time is not None}
    if REAL in ordered and len(ordered) > 1:
        out |= _in_order(ordered)
    return out


def _in_order(rows: Mapping[str, UnitRows]) -> dict[str, dict[str, float]]:
    lives = {n: r.lives() for n, r in rows.items()}
    real, rest = lives[REAL], {n: x for n, x in lives.items() if n != REAL}
    out: dict[str, dict[str, float]] = {}
    kept = [i for i, table in enumerate(real.transitions) if distances.is_associated(table)]
    if kept:
        out[TRANSITIONS] = {
            n: distances.retention([real.transitions[i] for i in kept], [x.transitions[i] for i in kept])
            for n, x in rest.items()
        }
    for name, of in ((GAPS, "gaps"), (FIRST, "first"), (LAST, "last")):
        if len(getattr(real, of)):
            out[name] = {n: distances.ks_distance(getattr(real, of), getattr(x, of)) for n, x in rest.items()}
    return out


class Question(NamedTuple):
    """Whether an owner has values of its own, and some row with given values, or two rows with one each.

    Values are (column, code), by the place of the column.
    """

    own: tuple[int, int] | None
    one: tuple[int, int]
    two: tuple[int, int]
    same_row: bool


class Lives(NamedTuple):
    """Rows in order: tables of each column but the time with that of the row before, gaps, first and last moments."""

    transitions: list[FloatArray]
    gaps: IntArray
    first: IntArray
    last: IntArray


@dataclass(frozen=True)
class UnitRows:
    """Rows of one table with their owners: codes of both, and moments of rows that come in an order."""

    codes: Sequence[IntArray]
    blocks: Sequence[slice]
    """Where the codes of each column lie among all codes."""
    owner: IntArray
    owners: int
    theirs: Sequence[IntArray]
    """Codes of the owners' columns."""
    time: FloatArray | None
    by: int = -1
    """Which column is the time itself; below 0 where none is."""

    @classmethod
    def of(cls, plan: Plan, coded: CodedDatabase, table: str, key: str, time: FloatArray | None) -> UnitRows:
        """Rows that have an owner."""
        target = plan.database[table].key[key].target
        names = sorted(usable_columns(plan, table), key=lambda c: coded.sizes[table, c])
        room = np.cumsum([coded.sizes[table, c] for c in names]) <= MOST_CODES
        names = [c for c, fits in zip(names, room, strict=True) if fits and coded.sizes[table, c] > 1]
        first = np.cumsum([0, *(coded.sizes[table, c] for c in names)]).tolist()
        rows = np.flatnonzero(coded.links[table, key] >= 0)
        return cls(
            [coded.codes[table, c][rows].astype(np.int64) for c in names],
            [slice(a, b) for a, b in pairwise(first)],
            coded.links[table, key][rows].astype(np.int64),
            coded.rows[target],
            [coded.codes[target, c].astype(np.int64) for c in usable_columns(plan, target)],
            None if time is None else time[rows],
            next((i for i, c in enumerate(names) if c == plan.table[table].key[key].order_by), -1),
        )

    def some(self, kept: Mask) -> UnitRows:
        """Only some owners, with their rows."""
        rows, place = np.flatnonzero(kept[self.owner]), np.cumsum(kept) - 1
        return UnitRows(
            [c[rows] for c in self.codes],
            self.blocks,
            place[self.owner[rows]],
            int(kept.sum()),
            [c[kept] for c in self.theirs],
            None if self.time is None else self.time[rows],
            self.by,
        )

    def sampled(self, most: int, rng: np.random.Generator) -> UnitRows:
        """At most so many owners, drawn at random."""
        if self.owners <= most:
            return self
        kept = np.zeros(self.owners, dtype=bool)
        kept[rng.choice(self.owners, most, replace=False)] = True
        return self.some(kept)

    @cached_property
    def _vectors(self) -> Any:
        """Rows as sparse vectors, 1 at the code of each column."""
        import scipy.sparse as sp

        rows, size = len(self.owner), self.blocks[-1].stop
        at = np.concatenate([c + b.start for c, b in zip(self.codes, self.blocks, strict=True)])
        which = np.tile(np.arange(rows), len(self.codes))
        return sp.csr_matrix((np.ones(len(at)), (which, at)), shape=(rows, size))

    def siblings(self) -> FloatArray:
        """Pairs of rows of one owner, over all pairs of codes; those of an owner with n rows weigh 1/(n - 1)."""
        import scipy.sparse as sp

        x = self._vectors
        count = np.bincount(self.owner, minlength=self.owners)
        weight = np.where(count > 1, 1 / np.maximum(count - 1, 1), 0.0)
        each = sp.csr_matrix((np.ones(x.shape[0]), (self.owner, np.arange(x.shape[0]))), shape=(len(count), x.shape[0]))
        sums = each @ x
        pairs = sums.T @ (sp.diags(weight) @ sums) - x.T @ (sp.diags(weight[self.owner]) @ x)
        return np.asarray(pairs.toarray())

    def excess(self, pairs: FloatArray, block: slice) -> float:
        """How much more often siblings agree on a column than any two rows do."""
        share = np.asarray(self._vectors[:, block].sum(axis=0)).ravel() / max(len(self.owner), 1)
        table = pairs[block, block]
        return float(np.trace(table) / max(table.sum(), 1e-300) - np.square(share).sum())

    @cached_property
    def _known(self) -> dict[tuple[int, int], tuple[IntArray, IntArray]]:
        return {}

    def _having(self, column: int, code: int) -> tuple[IntArray, IntArray]:
        """How many rows of each owner have a code, and one of them."""
        if (column, code) not in self._known:
            rows = np.flatnonzero(self.codes[column] == code)
            which = np.full(self.owners, -1)
            which[self.owner[rows]] = rows
            self._known[column, code] = np.bincount(self.owner[rows], minlength=self.owners), which
        return self._known[column, code]

    def answer(self, q: Question) -> float:
        """Share of the owners of whom it is so."""
        if q.same_row:
            both = (self.codes[q.one[0]] == q.one[1]) & (self.codes[q.two[0]] == q.two[1])
            found = np.bincount(self.owner[both], minlength=self.owners) > 0
        else:
            (n, i), (m, j) = self._having(*q.one), self._having(*q.two)
            # Two rows, one with each: not one and the same row for both.
            found = (n > 0) & (m > 0) & ((n > 1) | (m > 1) | (i != j))
        if q.own is not None:
            found &= self.theirs[q.own[0]] == q.own[1]
        return float(found.sum()) / max(self.owners, 1)

    def lives(self) -> Lives:
        """Rows that have a moment, in their order."""
        assert self.time is not None
        there = np.flatnonzero(~np.isnan(self.time))
        there = there[np.lexsort((there, self.time[there], self.owner[there]))]
        owner, time = self.owner[there], self.time[there].astype(np.int64)
        follows = np.flatnonzero(owner[1:] == owner[:-1]) + 1
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])) if len(owner) else np.zeros(0, np.int64)
        ends = np.append(starts[1:], len(owner))[: len(starts)] - 1
        tables = []
        for codes, block in (x for i, x in enumerate(zip(self.codes, self.blocks, strict=True)) if i != self.by):
            size, c = block.stop - block.start, codes[there]
            flat = c[follows - 1] * size + c[follows]
            tables.append(np.bincount(flat, minlength=size * size).reshape(size, size).astype(np.float64))
        return Lives(tables, time[follows] - time[follows - 1], time[starts], time[ends])


def questions(rows: UnitRows, rng: np.random.Generator, *, most: int) -> list[Question]:
    """Draw questions: columns at random, values from rows at random."""
    if not len(rows.owner):
        return []

    def drawn() -> tuple[int, int]:
        column = int(rng.integers(len(rows.codes)))
        return column, int(rows.codes[column][rng.integers(len(rows.owner))])

    out = []
    for _ in range(most):
        own = None
        if rows.theirs and rng.random() < 0.5:
            column = int(rng.integers(len(rows.theirs)))
            own = column, int(rows.theirs[column][rng.integers(rows.owners)])
        out.append(Question(own, drawn(), drawn(), bool(rng.random() < 0.5)))
    return out


def tables_apart(a: FloatArray, b: FloatArray, blocks: Sequence[slice]) -> float:
    """Mean total variation over tables of each two columns."""

    def apart(x: FloatArray, y: FloatArray) -> float:
        return float(np.abs(x / max(x.sum(), 1e-300) - y / max(y.sum(), 1e-300)).sum() / 2)

    return float(np.mean([apart(a[p, q], b[p, q]) for i, p in enumerate(blocks) for q in blocks[i:]]))


def moments_of(plan: Plan, whole: Callable[[str, str], pa.ChunkedArray]) -> dict[tuple[str, str], FloatArray]:
    """When rows are that come in an order, as whole steps; not a number where that is not known.

    ``whole`` returns a column of a table.
    """
    import pyarrow as pa

    found = {}
    for table in plan.tables:
        for key in (k for k in table.keys if k.order_by is not None):
            by = str(key.order_by)
            one = {table.name: pa.table({by: whole(table.name, by)})}
            found[table.name, by] = points(column_of(one, table.name, table.column[by].column))
    return found
