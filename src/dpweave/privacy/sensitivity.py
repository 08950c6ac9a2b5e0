r"""How far one unit can move a marginal of a view (PRIVACY §4; proofs in ``docs/proofs/sensitivity.md``).

Take neighbours :math:`D` and :math:`D'`. Rows of a view are counted into the cells of a marginal. Between :math:`D` and
:math:`D'` some rows leave a cell and some come into one; if at most ``down`` units of mass leave and at most ``up``
come, then :math:`\Delta_1 \le \text{down} + \text{up}` and :math:`\Delta_2 \le \sqrt{\text{down}^2 + \text{up}^2}`.
Where no cell can lose more than ``each``, :math:`\text{down}^2` may be replaced by :math:`\text{down} \cdot
\text{each}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpweave.errors import UsageError
from dpweave.privacy.unit_sums import EXACT, GRID, share
from dpweave.privacy.window import Units, Weighed
from dpweave.schema.domain import (
    STEPS,
    View,
    parse_degree,
    parse_earlier,
    parse_newcomer,
    parse_presence,
    parse_repetition,
)

if TYPE_CHECKING:
    from dpweave.privacy.promise import Promise
    from dpweave.privacy.window import UnitMoments
    from dpweave.schema.database import ForeignKey
    from dpweave.schema.domain import Path


@dataclass(frozen=True)
class Movement:
    """Largest mass that can leave cells and come into cells, over all neighbours that differ in one unit."""

    down: int
    up: int
    each: int | None = None
    """The most that can leave one cell, where that is known to be less than all."""

    @property
    def l1(self) -> float:
        """L1 sensitivity of a count vector."""
        return float(self.down + self.up)

    @property
    def l2(self) -> float:
        """L2 sensitivity of a count vector, rounded up."""
        square = self.down * (self.down if self.each is None else min(self.each, self.down)) + self.up**2
        root = math.isqrt(square)
        return float(root) if root * root == square else math.nextafter(math.sqrt(square), math.inf)


@dataclass(frozen=True)
class _Staying:
    """Rows outside the unit: those that enter the view, drop out of it, or change cells within it."""

    gained: int = 0
    lost: int = 0
    moved: int = 0

    def __add__(self, other: _Staying) -> _Staying:
        return _Staying(self.gained + other.gained, self.lost + other.lost, self.moved + other.moved)

    def __rmul__(self, factor: int) -> _Staying:
        return _Staying(factor * self.gained, factor * self.lost, factor * self.moved)


def movement(promise: Promise, view: View, columns: tuple[str, ...], unit: str) -> Movement:
    """Bound what one unit of the protected table ``unit`` moves in the marginal of ``view`` over ``columns``.

    Formal guarantees:
      - Neighbours: those of ``promise``, restricted to units of ``unit``.
      - The bound holds for every pair of neighbours after bounding (``entity``), or for every pair that keeps its
        promised bounds (``record``).
      - Depends on the schema and the plan alone.
    """
    return _Calculus(promise, view, columns, unit).movement()


def belonging(promise: Promise, unit: str, table: str) -> int:
    """Rows of ``table`` that are counted only while one unit of ``unit`` is there:
    those it owns, and those it shares.
    """
    return _Calculus(promise, View(table, ()), (), unit).rows_that_go()


def units_of(promise: Promise, view: View) -> Units | None:
    """What is public about one unit's rows in ``view``, and which of its columns unit
    sums may hold; None where there are no unit sums.
    """
    owning = promise.chain(view.base) if view.base not in promise.public else ()
    kept = frozenset(name for name in view.attribute if stays(promise, view, (name,)))
    if not owning or not kept:
        return None
    shared = frozenset(n for n, a in view.columns if a.path[:1] == (owning[0][1],))
    columns = None if len(kept) == len(view.columns) else kept
    return Units(promise.owned_rows(promise.root(view.base), view.base), shared, columns)


def stays(promise: Promise, view: View, columns: tuple[str, ...]) -> bool:
    """Whether the rows of other units are counted alike with and without any one unit,
    so that units may be clipped (Theorem 6).

    Only rows that belong to units are clipped, and only under ``entity``; newcomers have no codes of their own.
    """
    calculi = [_Calculus(promise, view, columns, unit) for unit in promise.protected]
    belong = promise.neighbours == "entity" and view.base not in promise.public
    newcomers = any(parse_newcomer(view.attribute[c].column) for c in columns)
    return belong and not newcomers and all(c.rows_stay() for c in calculi)


def siblings_at_most(promise: Promise, view: View, moments: UnitMoments) -> int:
    """How many rows of one owner second moments look at, at most; 0 where they may not be asked (Theorem 6).

    All rows belong to units, in columns that no other unit moves, and reach their owner by owning keys.
    """
    most = []
    for one in moments.views(view):
        units, asked = units_of(promise, one), [c for c in moments.all_columns if c in one.attribute]
        if units is None or not units.hold(asked) or one.base == moments.owner:
            return 0
        most.append(promise.owned_rows(moments.owner, one.base))
    return sum(most) if all(most) and sum(most) < 1 << EXACT // 2 else 0


def weighed(promise: Promise, table: str) -> Weighed:
    r"""Bound what one unit moves where categories of ``table`` are learned (docs/proofs, Theorem 9).

    Formal guarantees:
      - Neighbours: those of ``promise``. Rows are weighed by units where those of others stay (Theorem 6).
      - A unit with k categories gives each of them at most :math:`L/\sqrt k`. ``alone`` covers every k that
        bounds allow, k from one power of two to the next at once.
      - Depends on the schema and the plan alone.
    """
    moves = {t: movement(promise, View(table, ()), (), t) for t in promise.protected}
    rows = max(max(m.down, m.up) for m in moves.values())
    if rows <= 1 or not stays(promise, View(table, ()), ()):
        return Weighed(1, {t: m.l2 for t, m in moves.items()}, ((rows, rows),))
    return Weighed(
        GRID,
        {promise.root(table): float(GRID)},
        tuple((min((2 << i) - 1, rows), max(share(1 << i, length=GRID), 1)) for i in range(rows.bit_length())),
    )


@dataclass(frozen=True)
class _Calculus:
    promise: Promise
    view: View
    columns: tuple[str, ...]
    unit: str

    def movement(self) -> Movement:
        self._refuse_strangers()
        base, each = self.view.base, self._newcomers()
        if self.promise.neighbours == "record":
            moved = self._replaced(base) + self._staying(base, ()).moved
            return Movement(moved, moved)
        removed, staying = self._removed(base), self._staying(base, ())
        # Seen by its target alone, a backfilled link lands where a place was vacated,
        # hence in the cell that lost a row.
        gained = staying.gained - (removed if self._looks_at_one_target_only() else 0)
        down, up = removed + staying.lost + staying.moved, gained + staying.moved
        return Movement(down, up, each if (down, up) == (removed, 0) else None)

    def rows_stay(self) -> bool:
        """Whether no row outside the unit enters the view, leaves it or changes cells."""
        self._refuse_strangers()
        return self._staying(self.view.base, ()) == _Staying()

    def rows_that_go(self) -> int:
        """Rows of the base that count no longer without the unit."""
        return self._removed(self.view.base) + self._blanks(self.view.base).lost

    def _newcomers(self) -> int | None:
        """Rows of one unit that a marginal with a newcomer column counts for one public
        row (Theorem 5): one for each owner.
        """
        base, promise = self.view.base, self.promise
        found = [
            (a.path, k) for a in map(self.view.attribute.__getitem__, self.columns) if (k := parse_newcomer(a.column))
        ]
        for path, name in found:
            covered = not path and base not in promise.public and promise.neighbours == "entity"
            if not covered or promise.is_private(promise.database[base].key[name]):
                raise UsageError(
                    f"targets of {name!r} are counted one by one only where they are public, over the rows that lead to"
                    " them and under entity neighbours"
                )
        if not found:
            return None
        owner = promise.owning.get(base)
        return max(self._removed(base if owner is None else promise.database[base].key[owner].target), 1)

    def _refuse_strangers(self) -> None:
        """Refuse columns that their table does not have, and degrees of public rows as
        seen from rows that lead to them.

        Any number of rows may lead to one public row, so its degree, seen from them, could move them all.
        """
        for name in self.columns:
            attribute = self.view.attribute[name]
            seen, column = self.promise.graph.walk(self.view.base, attribute.path), attribute.column
            own, led = self.promise.database[seen], {(t.name, k.name) for t, k in self.promise.graph.incoming(seen)}
            key = parse_presence(column) or parse_repetition(column) or parse_newcomer(column)
            if (said := parse_earlier(column)) is not None:
                self._refuse_disorder(seen, *said)
            elif not (column in own.column or key in own.key or parse_degree(column) in led):
                raise UsageError(
                    f"{seen!r} has no column {column!r}; derived columns go by a key of its own, degrees by one to it"
                )
            if attribute.path and seen in self.promise.public and parse_degree(column) is not None:
                raise UsageError(
                    f"{name!r} counts the rows that lead to the public table {seen!r}, as seen from {self.view.base!r};"
                    f" no bound holds for that, so count over {seen!r} itself"
                )

    def _refuse_disorder(self, table: str, column: str, order: str) -> None:
        """Refuse what a row before says, but where all rows of an owner belong to one
        unit and count with it (Theorem 6).
        """
        promise, own = self.promise, self.promise.database[table].column
        units = promise.neighbours == "entity" and table in promise.owning and not promise.may_blank(table)
        led = {c for key in promise.database[table].foreign_keys if promise.is_private(key) for c in key.columns}
        if not (units and table not in promise.public and column in own.keys() - led and order in own):
            raise UsageError(f"rows of {table!r} have no row of their unit before them that says {column!r}")
        if own[order].type.kind not in STEPS:
            raise UsageError(f"{order!r} does not say how far apart rows of {table!r} are")

    def _paths(self) -> tuple[Path, ...]:
        return self.view.paths(self.columns)

    def _removed(self, table: str) -> int:
        return self.promise.owned_rows(self.unit, table)

    def _replaced(self, table: str) -> int:
        """Under ``record``: rows of ``table`` that belong to the changed row, relationships included."""
        return self._removed(table) + self._relationships(table)

    def _relationships(self, table: str, *, but: str | None = None) -> int:
        """Rows of a junction that link to the unit by a key that does not own them (nor
        is ``but``): replaced with it.
        """
        promise = self.promise
        if not self._is_relationship(table):
            return 0
        return sum(
            promise.bounds[table, key.name] * self._removed(key.target)
            for key in promise.database[table].foreign_keys
            if promise.is_private(key) and not promise.is_owning(table, key.name) and key.name != but
        )

    def _staying(self, table: str, path: Path, *, owner: bool = False) -> _Staying:
        """Rows of ``table`` that change by what lies at or beyond ``path``; where it is
        an ``owner``, its rows know of its blanks.
        """
        total = _Staying(moved=self._moved_derived(table, path)) + (_Staying() if owner else self._blanks(table))
        for key in self.promise.database[table].foreign_keys:
            further = (*path, key.name)
            if further in self._paths() and self.promise.is_private(key):
                owns = self.promise.is_owning(table, key.name)
                total += self._along(table, key, self._staying(key.target, further, owner=owns))
        return total

    def _blanks(self, table: str) -> _Staying:
        """Rows that cease to be blank, and that begin to be, by their shared keys or
        those of their owners (Theorem 8).
        """
        total = _Staying()
        for key in self.promise.database[table].foreign_keys if self.promise.shared else ():
            bound = self.promise.bounds.get((table, key.name), 0)
            if self.promise.is_shared(table, key.name):
                total += _Staying(gained=self._removed(table), lost=bound * self._removed(key.target))
            elif self.promise.is_owning(table, key.name):
                total += bound * self._blanks(key.target)
        return total

    def _along(self, table: str, key: ForeignKey, further: _Staying) -> _Staying:
        """Rows of ``table`` that change because of what ``key`` leads to."""
        bound = self.promise.bounds[table, key.name]
        inherited = bound * further
        entity = self.promise.neighbours == "entity"
        if self._stays(table, key.name) or (self._is_relationship(table) and not entity):
            return inherited
        if entity:
            return inherited + _Staying(gained=self._removed(table), lost=bound * self._removed(key.target))
        return inherited + _Staying(moved=2 * bound * self._removed(key.target))

    def _stays(self, table: str, key: str) -> bool:
        """Whether a row that counts with and without the unit leads to the same row by
        ``key`` (Lemma 1, Theorems 7 and 8).
        """
        promise = self.promise
        return promise.is_owning(table, key) or promise.is_within(table, key) or promise.is_shared(table, key)

    def _is_relationship(self, table: str) -> bool:
        """Whether rows of ``table`` stand for relationships, which under ``record`` come and go with either end."""
        return table not in {*self.promise.protected, *self.promise.public} and self.promise.graph.is_junction(table)

    def _moved_derived(self, table: str, path: Path) -> int:
        """Rows of ``table`` at the end of ``path``, outside the unit, whose derived columns change."""
        attributes = (self.view.attribute[name] for name in self.columns)
        return sum(self._moved_column(table, path, a.column) for a in attributes if a.path == path)

    def _moved_column(self, table: str, path: Path, column: str) -> int:
        if (counted := parse_degree(column)) is not None:
            return self._moved_degree(*counted)
        if (name := parse_presence(column)) is not None:
            key = self.promise.database[table].key[name]
            return 0 if self.promise.says_itself(table, key) else self._relinked(table, key)
        if (name := parse_repetition(column)) is not None:
            return self._moved_repetition(table, path, self.promise.database[table].key[name])
        return 0

    def _relinked(self, table: str, key: ForeignKey) -> int:
        """Rows whose link by ``key`` appears or disappears: those that :meth:`_along` lets in, out, or about."""
        if not self.promise.is_private(key):
            return 0
        owns = self.promise.is_owning(table, key.name)
        staying = self._along(table, key, _Staying() if owns else self._blanks(key.target))
        return staying.gained + staying.lost + staying.moved

    def _moved_repetition(self, table: str, path: Path, key: ForeignKey) -> int:
        """Rows that begin or cease to repeat a target of an earlier row of their owner (Theorem 4).

        Rows whose own link changes are counted as such where the view walks ``key``. A row whose link stays is moved by
        an earlier one that comes or goes: never under ``entity``; under ``record`` at most one for each row that does.
        """
        if table in self.promise.public or self.promise.owning.get(table) in (None, key.name):
            raise UsageError(f"{table!r} has no owner whose rows could repeat a target of {key.name!r}")
        relinked = self._relinked(table, key)
        record = self.promise.neighbours == "record"
        others = relinked + 2 * self._relationships(table, but=key.name) if record else 0
        return others if (*path, key.name) in self._paths() else others + relinked

    def _moved_degree(self, child: str, key: str) -> int:
        owning = self.promise.is_owning(child, key)
        if self.promise.neighbours == "entity":
            blanks = self._blanks(child)
            return 0 if owning else self._removed(child) + blanks.gained + blanks.lost
        if owning:
            return 2 * self._relationships(child)
        unit = self._removed(self.promise.database[child].key[key].target)
        relinked = self.promise.bounds[child, key] * unit if unit and not self._is_relationship(child) else 0
        return 2 * (self._replaced(child) + relinked)

    def _looks_at_one_target_only(self) -> bool:
        """Whether every column lies beyond one and the same linking key of the base table."""
        first = {path[0] for path in self._paths()}
        if len(first) != 1 or any(not self.view.attribute[c].path for c in self.columns):
            return False
        (name,) = first
        base, key = self.view.base, self.promise.database[self.view.base].key[name]
        return self.promise.is_private(key) and not self._stays(base, name) and not self.promise.may_blank(base)
