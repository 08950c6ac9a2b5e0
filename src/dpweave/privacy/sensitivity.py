r"""How far one unit can move a marginal of a view (PRIVACY §4; proofs in ``docs/proofs/sensitivity.md``).

Take neighbours :math:`D` and :math:`D'`. Rows of a view are counted into the cells of a marginal. Between :math:`D` and
:math:`D'` some rows leave a cell and some come into one; if at most ``down`` units of mass leave and at most ``up``
come, then :math:`\Delta_1 \le \text{down} + \text{up}` and :math:`\Delta_2 \le \sqrt{\text{down}^2 + \text{up}^2}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpweave.errors import UsageError
from dpweave.schema.domain import parse_degree, parse_presence

if TYPE_CHECKING:
    from dpweave.privacy.promise import Promise
    from dpweave.schema.domain import Path, View
    from dpweave.schema.model import ForeignKey


@dataclass(frozen=True)
class Movement:
    """Largest mass that can leave cells and come into cells, over all neighbours that differ in one unit."""

    down: int
    up: int

    @property
    def l1(self) -> float:
        """L1 sensitivity of a count vector."""
        return float(self.down + self.up)

    @property
    def l2(self) -> float:
        """L2 sensitivity of a count vector, rounded up."""
        square = self.down**2 + self.up**2
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


@dataclass(frozen=True)
class _Calculus:
    promise: Promise
    view: View
    columns: tuple[str, ...]
    unit: str

    def movement(self) -> Movement:
        self._refuse_public_degrees()
        base = self.view.base
        if self.promise.neighbours == "record":
            replaced = self._replaced(base)
            moved = self._staying(base, ()).moved
            return Movement(replaced + moved, replaced + moved)
        removed = self._removed(base)
        staying = self._staying(base, ())
        gained = staying.gained
        if self._looks_at_one_target_only():
            # A backfilled link lands on the target whose place was vacated, hence in the cell that lost a row.
            gained -= removed
        return Movement(removed + staying.lost + staying.moved, gained + staying.moved)

    def _refuse_public_degrees(self) -> None:
        """Any number of rows may lead to one public row, so its degree, seen from them, could move them all."""
        for name in self.columns:
            attribute = self.view.attribute[name]
            seen = self.promise.graph.walk(self.view.base, attribute.path)
            if attribute.path and seen in self.promise.public and parse_degree(attribute.column) is not None:
                raise UsageError(
                    f"{name!r} counts the rows that lead to the public table {seen!r}, as seen from {self.view.base!r}; "
                    f"no bound holds for that, so count over {seen!r} itself"
                )

    def _paths(self) -> tuple[Path, ...]:
        return self.view.paths(self.columns)

    def _removed(self, table: str) -> int:
        return self.promise.owned_rows(self.unit, table)

    def _replaced(self, table: str) -> int:
        """Under ``record``: rows of ``table`` that belong to the changed row, relationships included."""
        return self._removed(table) + self._relationships(table)

    def _relationships(self, table: str) -> int:
        """Rows of a junction that link to the unit by a key that does not own them: replaced with its relationships."""
        promise = self.promise
        if not self._is_relationship(table):
            return 0
        return sum(
            promise.bounds[table, key.name] * self._removed(key.target)
            for key in promise.database[table].foreign_keys
            if promise.is_private(key) and not promise.is_owning(table, key.name)
        )

    def _staying(self, table: str, path: Path) -> _Staying:
        total = _Staying(moved=self._moved_derived(table, path))
        for key in self.promise.database[table].foreign_keys:
            if (*path, key.name) in self._paths() and self.promise.is_private(key):
                total += self._along(table, key, self._staying(key.target, (*path, key.name)))
        return total

    def _along(self, table: str, key: ForeignKey, further: _Staying) -> _Staying:
        """Rows of ``table`` that change because of what ``key`` leads to."""
        bound = self.promise.bounds[table, key.name]
        inherited = bound * further
        if self.promise.is_owning(table, key.name):
            return inherited
        if self.promise.neighbours == "entity":
            return inherited + _Staying(gained=self._removed(table), lost=bound * self._removed(key.target))
        if self._is_relationship(table):
            return inherited
        return inherited + _Staying(moved=2 * bound * self._removed(key.target))

    def _is_relationship(self, table: str) -> bool:
        """Whether rows of ``table`` stand for relationships, which under ``record`` come and go with either end."""
        promise = self.promise
        return table not in promise.protected and table not in promise.public and promise.graph.is_junction(table)

    def _moved_derived(self, table: str, path: Path) -> int:
        """Rows of ``table`` at the end of ``path``, outside the unit, whose derived columns change."""
        moved = 0
        for name in self.columns:
            attribute = self.view.attribute[name]
            if attribute.path != path:
                continue
            counted, key = parse_degree(attribute.column), parse_presence(attribute.column)
            if counted is not None:
                moved += self._moved_degree(*counted)
            if key is not None:
                moved += self._moved_presence(table, self.promise.database[table].key[key])
        return moved

    def _moved_presence(self, table: str, key: ForeignKey) -> int:
        """Rows whose link by ``key`` appears or disappears: those that :meth:`_along` lets in, out, or about."""
        if not self.promise.is_private(key):
            return 0
        staying = self._along(table, key, _Staying())
        return staying.gained + staying.lost + staying.moved

    def _moved_degree(self, child: str, key_name: str) -> int:
        key = self.promise.database[child].key[key_name]
        owning = self.promise.is_owning(child, key_name)
        if self.promise.neighbours == "entity":
            return 0 if owning else self._removed(child)
        if owning:
            return 2 * self._relationships(child)
        moved = 2 * self._replaced(child)
        if self._removed(key.target) and not self._is_relationship(child):
            moved += 2 * self.promise.bounds[child, key_name] * self._removed(key.target)
        return moved

    def _looks_at_one_target_only(self) -> bool:
        """Whether every column lies beyond one and the same linking key of the base table."""
        base = self.view.base
        first = {path[0] for path in self._paths()}
        if len(first) != 1 or any(not self.view.attribute[c].path for c in self.columns):
            return False
        (name,) = first
        key = self.promise.database[base].key[name]
        return self.promise.is_private(key) and not self.promise.is_owning(base, name)
