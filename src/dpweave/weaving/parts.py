"""Large databases in parts: each a small database of its own, woven by itself, so that memory does not grow.

A database of more than :data:`PART_VALUES` values is divided into parts of about that size. A part has its share of the
rows of every **divided** table, linked among themselves. Tables that are small, or cannot be divided, are **common**:
they are woven whole, with the first part, and the rows of every part may lead to them, as they may to public tables.
What one part must know of the parts before it is in the :class:`SharedRows`: how many rows there are, how far numbering
has come inside keys that hold a common row, and which values a rule has settled. A part can be wired before that is
known. A fit learns links from such a part, too (:func:`pilot`).

A database of one part is woven as if there were none of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Table

PART_VALUES = 1 << 22
"""Values (rows times columns) of one part, and of all common tables that could have been divided."""

FEW = 100
"""Owners of which a part would have fewer are common: their rows are divided, not they."""

ENOUGH_ROWS = 1000
"""Rows of each table that links are learned from, if it has as many. On Sakila (epsilon 4, 1000 to 16,000 rows) and
MovieLens (epsilon 1, 1000 to 100,000 rows) errors of copies differ by one percent or so, less than from seed to seed.
"""

PILOT_PARTS = 4
"""Parts that links are learned from at most, for the sake of tables with fewer rows in one. It sets the memory of a fit
then, and matters for no database that has :data:`ENOUGH_ROWS` of every table in one part.
"""


@dataclass(frozen=True)
class Part:
    """One of ``count`` shares of a database."""

    index: int = 0
    count: int = 1

    def share(self, total: float) -> int:
        """Whole number of ``total`` that falls to this part; all parts together have exactly ``total``, rounded.

        >>> [Part(i, 3).share(7.4) for i in range(3)]
        [2, 2, 3]
        """
        whole = max(0, round(total))
        return whole * (self.index + 1) // self.count - whole * self.index // self.count

    def starts(self, rows: int, rng: np.random.Generator) -> IntArray:
        """Draw at which part sharing begins for each of some totals: with the same ``rng`` the same in every part."""
        return np.asarray(rng.integers(0, self.count, rows))

    def shares(self, totals: IntArray, starts: IntArray) -> IntArray:
        """Share of each of many totals. With the same ``starts`` in every part, they add up to the totals.

        >>> sum(Part(i, 3).shares(np.array([1, 5]), np.array([2, 0])) for i in range(3))
        array([1, 5])
        """
        return np.asarray(
            (totals * (self.index + 1) + starts) // self.count - (totals * self.index + starts) // self.count
        )


@dataclass(frozen=True)
class WeavingJob:
    """A database to be woven in parts."""

    scale: float
    seed: int
    count: int
    common: frozenset[str]


@dataclass(frozen=True)
class OwnedRows:
    """How many rows each owner has by one key in all parts, and at which part sharing them out begins."""

    degrees: IntArray
    starts: IntArray

    def of(self, owners: Any) -> OwnedRows:
        """Return the same for these of the owners, by position or by a mask."""
        return OwnedRows(self.degrees[owners], self.starts[owners])


@dataclass
class EarlierRows:
    """What a part must know of those before it, once they are wired: how many rows they have, how far numbers came."""

    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table in the parts so far."""
    numbers: dict[tuple[str, str], tuple[IntArray, IntArray]] = field(default_factory=dict)
    """For numbered columns, the groups they are numbered within and how far each has come."""
    settled: dict[str, dict[tuple[Any, ...], Any]] = field(default_factory=dict)
    """Values that rules have settled."""

    def reached(self, what: tuple[str, str], group: IntArray) -> IntArray:
        """How far the group of each row has come.

        >>> earlier = EarlierRows()
        >>> earlier.add(EarlierRows(numbers={("t", "nr"): (np.array([5, 7]), np.array([2, 1]))}))
        >>> earlier.reached(("t", "nr"), np.array([7, 5, 9]))
        array([1, 2, 0])
        """
        known, reached = self.numbers.get(what, (np.array([-1]), np.array([0])))
        at = np.minimum(np.searchsorted(known, group), len(known) - 1)
        return np.asarray(np.where(known[at] == group, reached[at], 0))

    def furthest(self, what: tuple[str, str]) -> int:
        """How far any number of a column has come at most."""
        return max(self.rows.get(what[0], 0), int(self.numbers[what][1].max(initial=0)) if what in self.numbers else 0)

    def leave_room(self, hopes: Mapping[tuple[str, str], tuple[int, int]]) -> bool:
        """Whether columns whose largest number and its end are known hold the numbers of a part behind these."""
        return all(self.furthest(what) + largest < most for what, (largest, most) in hopes.items())

    def add(self, part: EarlierRows) -> None:
        """Count in the rows and numbers of the part after these; what it settled is in the same ``settled``."""
        for name, rows in part.rows.items():
            self.rows[name] = self.rows.get(name, 0) + rows
        for what, (group, times) in part.numbers.items():
            known, reached = self.numbers.get(what, (np.array([-1]), np.array([0])))
            every, place = np.unique(np.concatenate([known, group]), return_inverse=True)
            total = np.bincount(place[len(known) :], weights=times, minlength=len(every)).astype(np.int64)
            total[place[: len(known)]] += reached
            self.numbers[what] = every, total


@dataclass
class SharedRows:
    """What runs through all parts of a database. Every part reads it and adds to it, in order."""

    common: frozenset[str] = frozenset()
    tables: dict[str, pa.Table] = field(default_factory=dict)
    """Common tables, once the first part has made them."""
    codes: dict[str, dict[str, IntArray]] = field(default_factory=dict)
    """Codes of public and common tables."""
    links: dict[tuple[str, str], IntArray] = field(default_factory=dict)
    """Links of public and common tables, which lead to such tables alone."""
    owned: dict[tuple[str, str], OwnedRows] = field(default_factory=dict)
    """How many rows owners in common tables have in all parts."""
    wait: Callable[[], EarlierRows] | None = None
    """Where the parts before are woven at the same time: waits until it is known what they are."""
    hopes: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """For numbered columns, the largest number within this part and where numbers must end: checked later."""
    _earlier: EarlierRows = field(default_factory=EarlierRows)

    @property
    def earlier(self) -> EarlierRows:
        """The parts before."""
        if self.wait is not None:
            self._earlier, self.wait = self.wait(), None
        return self._earlier

    def know(self, earlier: EarlierRows) -> None:
        """Say what the parts before are; nobody waits then."""
        self._earlier, self.wait = earlier, None

    def hopes_to_fit(self, what: tuple[str, str], largest: int, most: int) -> bool:
        """Take for granted, rather than wait, that the numbers of a column stay below ``most`` behind earlier parts.

        Whoever lets this part go on sees whether they do.
        """
        if self.wait is not None and largest < most:
            before, _ = self.hopes.get(what, (0, 0))
            self.hopes[what] = max(before, largest), most
        return self.wait is not None and largest < most


def divide(plan: Plan, rows: Mapping[str, float]) -> tuple[int, frozenset[str]]:
    """How many parts a database with these expected ``rows`` has, and which private tables are common to them.

    Common is what must be: a table whose key is made of foreign keys alone that all lead to public or common rows,
    since two parts could make the same one, and whatever a common table leads to. Common is further, smallest first and
    as long as all that this brings along stays within a part's size: a protected table that owns nothing, since the
    links to it are then spread over all of its rows; and one of which a part would have too few rows.
    """
    private = plan.promise.private
    values = {name: rows[name] * max(len(plan.database[name].columns), 1) for name in private}
    count = -int(-sum(values.values()) // PART_VALUES)
    if count <= 1:
        return 1, frozenset()
    common = _with_targets(plan, frozenset())
    owners = {plan.database[t].key[k].target for t, k in plan.promise.owning.items()}
    for name in sorted(plan.promise.protected, key=lambda n: values[n]):
        if plan.promise.graph.incoming(name) and (name not in owners or rows[name] < FEW * count):
            more = _with_targets(plan, common | {name})
            if sum(values[n] for n in more - common) <= PART_VALUES:
                common = more
    return (1, frozenset()) if common == set(private) else (count, common)


def pilot(plan: Plan, rows: Mapping[str, float]) -> tuple[Part, frozenset[str]]:
    """Return the part of a database with these expected ``rows`` that links are learned from, and its common tables.

    All of it, if it fits into one part. Else about one part, or more of it where that would have too few rows of a
    divided table. Common tables are whole.
    """
    count, common = divide(plan, rows)
    divided = [rows[name] for name in plan.promise.private if name not in common and rows[name] >= 1]
    most = min((int(n // ENOUGH_ROWS) for n in divided), default=1)
    count = max(min(count, most), -(-count // PILOT_PARTS))
    return Part(0, count), common if count > 1 else frozenset()


def _with_targets(plan: Plan, common: frozenset[str]) -> frozenset[str]:
    """All private tables that are common if these are."""
    whole = {*common, *plan.public}
    size = -1
    while size != len(whole):
        size = len(whole)
        for table in plan.database:
            if any(_only_leads_to(table, unique, whole) for unique in (table.primary_key, *table.unique)):
                whole.add(table.name)
            if table.name in whole:
                whole |= {k.target for k in table.foreign_keys}
    return frozenset(whole - set(plan.public))


def _only_leads_to(table: Table, unique: tuple[str, ...], whole: set[str]) -> bool:
    keys = [k for k in table.foreign_keys if set(k.columns) & set(unique)]
    covered = {c for k in keys for c in k.columns}
    return bool(unique) and set(unique) <= covered and all(k.target in whole for k in keys)


@dataclass(frozen=True)
class Woven:
    """One part: its rows by table, perhaps in files, and how many had to change so that each declared rule holds."""

    tables: Mapping[str, Any]
    repairs: Mapping[str, int]


class Parts(Mapping[str, Any]):
    """Tables by name that are woven part by part: once for whoever takes the parts, and
    whole if a table is asked for.
    """

    def __init__(
        self,
        weave: Callable[[], Iterable[Woven]],
        names: Iterable[str],
        count: int,
        *,
        kept: Callable[[Path], Iterable[Woven]] | None = None,
    ) -> None:
        self._weave, self._kept = weave, kept
        self._names = tuple(names)
        self.count = count
        self.rows: dict[str, int] = {}
        """Rows of each table, once all parts were woven."""
        self.repairs: dict[str, int] = {}
        """Rows that each rule changed, once all parts were woven."""

    def __getitem__(self, name: str) -> pa.Table:
        return self.gathered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def stream(self, folder: Path | None = None) -> Iterator[Mapping[str, Any]]:
        """Weave all parts anew, in order. Every table is in at least one of them.

        Where others weave them, their rows are in files in ``folder``.
        """
        rows: dict[str, int] = dict.fromkeys(self._names, 0)
        repairs: dict[str, int] = {}
        for part in self._weave() if self._kept is None or folder is None else self._kept(folder):
            for name in part.tables:
                rows[name] += part.tables[name].num_rows
            for rule, changed in part.repairs.items():
                repairs[rule] = repairs.get(rule, 0) + changed
            yield part.tables
            del part  # before the next one is made
        self.rows.update(rows)
        self.repairs.update(repairs)

    @cached_property
    def gathered(self) -> dict[str, pa.Table]:
        """All parts put together in memory."""
        import pyarrow as pa

        found: dict[str, list[pa.Table]] = {name: [] for name in self._names}
        for part in self.stream():
            for name, table in part.items():
                found[name].append(table)
        return {name: tables[0] if len(tables) == 1 else pa.concat_tables(tables) for name, tables in found.items()}
