"""Made-up databases that differ in everything at once, with what is true about them known.

Each is a function of a seed: tables, sizes, keys, degrees, values. Nothing here looks at dpweave's methods: only its
schema and its writers are used, so that a database can be put into any engine.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpweave.schema.database import Column, Database, ForeignKey, Table, Type

if TYPE_CHECKING:
    from numpy.typing import NDArray

TODAY = dt.date(2025, 6, 30)
WORDS = ("person", "visit", "order", "item", "claim", "stay", "loan", "trip", "note", "test", "payment", "booking")
PUBLIC_WORDS = ("product", "town", "clinic", "genre", "drug", "course", "branch")


@dataclass
class Draft:
    """A table in the making: values by column, and the trait of each row that its columns go by."""

    name: str
    rows: int
    trait: NDArray[np.int64]
    columns: list[Column] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ("id",)
    keys: list[ForeignKey] = field(default_factory=list)
    depth: int = 0

    def add(self, name: str, kind: Type, values: Any, *, nullable: bool = False) -> None:
        """Add a column under a name that is not taken."""
        while name in self.values:
            name += "_2"
        self.columns.append(Column(name, kind, nullable=nullable))
        self.values[name] = values


@dataclass(frozen=True)
class MadeUp:
    """One database, who is protected in it, and what is public."""

    name: str
    schema: Database
    tables: dict[str, pa.Table]
    protect: tuple[str, ...]
    public: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(t.num_rows for t in self.tables.values())


TRAITS = 4


def made_up(seed: int, *, most_units: int = 300_000, most_rows: int = 300_000, most_tables: int = 30) -> MadeUp:
    """Make the database of a seed, with at most so many protected units, rows of one table, and tables."""
    rng = np.random.default_rng([seed, 2026])
    units = int(300 * (most_units / 300) ** rng.random())
    count = int(rng.integers(2, max(int(most_tables * rng.random()), 3) + 1))
    taken: dict[str, Draft] = {}
    public = [
        _public(rng, _name(rng, PUBLIC_WORDS, taken), taken) for _ in range(min(int(rng.integers(0, 5)), count - 1))
    ]
    roots = [_table(rng, _name(rng, WORDS, taken), units, taken)]
    if count - len(public) > 2 and rng.random() < 0.3:
        roots.append(_table(rng, _name(rng, WORDS, taken), max(int(units * rng.uniform(0.01, 1.0)), 20), taken))
    if len(public) > 1 and rng.random() < 0.4:
        public.append(_public_junction(rng, public, taken))
    private = list(roots)
    while len(taken) < count:
        private.append(_owned(rng, _name(rng, WORDS, taken), private, taken, most_rows))
    for table in private:
        _link(rng, table, roots, public)
    for table in private:
        _self_reference(rng, table)
    tables = [Table(d.name, tuple(d.columns), d.primary_key, (), tuple(d.keys)) for d in taken.values()]
    return MadeUp(
        f"made_up_{seed}",
        Database(tuple(tables)),
        {d.name: _arrow(d) for d in taken.values()},
        tuple(d.name for d in roots),
        tuple(d.name for d in public),
    )


def _name(rng: np.random.Generator, words: tuple[str, ...], taken: dict[str, Draft]) -> str:
    word = str(rng.choice(words))
    return word if word not in taken else f"{word}_{len(taken)}"


def _arrow(table: Draft) -> pa.Table:
    from dpweave.schema.arrow_types import arrow_type

    return pa.table(
        {c.name: pa.array(table.values[c.name], arrow_type(c.type), from_pandas=True) for c in table.columns}
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def _table(rng: np.random.Generator, name: str, rows: int, taken: dict[str, Draft]) -> Draft:
    trait = rng.choice(TRAITS, rows, p=_zipf(TRAITS, 0.7))
    table = Draft(name, rows, trait)
    table.add("id", Type("integer"), rng.permutation(rows) + int(rng.integers(0, 1000)))
    for i in range(int(rng.integers(1, 8))):
        _column(rng, table, i)
    taken[name] = table
    return table


def _public(rng: np.random.Generator, name: str, taken: dict[str, Draft]) -> Draft:
    rows = int(3 * 1000 ** rng.random())
    table = Draft(name, rows, rng.choice(TRAITS, rows))
    table.add("id", Type("integer"), np.arange(1, rows + 1))
    table.add("name", Type("text"), [f"{name} {i}" for i in range(rows)])
    for i in range(int(rng.integers(0, 3))):
        _category(rng, table, f"kind_{i}")
    taken[name] = table
    return table


def _public_junction(rng: np.random.Generator, public: list[Draft], taken: dict[str, Draft]) -> Draft:
    """Which of one public table go with which of another: genres of films."""
    a, b = (public[int(i)] for i in rng.choice(len(public), 2, replace=False))
    pairs = {(int(i), int(rng.integers(b.rows))) for i in range(a.rows) for _ in range(int(rng.integers(1, 4)))}
    at = np.array(sorted(pairs))
    table = Draft(f"{a.name}_{b.name}", len(at), a.trait[at[:, 0]], primary_key=(f"{a.name}_id", f"{b.name}_id"))
    for side, rows in ((a, at[:, 0]), (b, at[:, 1])):
        table.add(f"{side.name}_id", Type("integer"), side.values["id"][rows])
        table.keys.append(ForeignKey((f"{side.name}_id",), side.name, ("id",), side.name))
    taken[table.name] = table
    return table


def _owned(rng: np.random.Generator, name: str, private: list[Draft], taken: dict[str, Draft], most_rows: int) -> Draft:
    """Rows that belong to rows of another private table: some of them to nobody, or none at all."""
    owners = private[int(rng.integers(len(private)))]
    while owners.depth >= 3 or len(owners.primary_key) > 1:
        owners = private[int(rng.integers(len(private)))]
    degrees = _degrees(rng, owners, most_rows)
    at = np.repeat(np.arange(owners.rows), degrees)
    if rng.random() < 0.06:
        at = at[:0]
    trait = np.where(rng.random(len(at)) < 0.6, owners.trait[at], rng.choice(TRAITS, len(at)))
    table = Draft(name, len(at), trait, depth=owners.depth + 1)
    key, bare = f"{owners.name}_id", rng.random() < 0.15
    composite = not bare and rng.random() < 0.25
    if not composite:
        table.add("id", Type("integer"), rng.permutation(len(at)) + 1)
    values = owners.values["id"][at].astype(object)
    if bare:
        values[rng.random(len(at)) < 0.05] = None
    table.add(key, Type("integer"), list(values), nullable=bare)
    table.keys.append(ForeignKey((key,), owners.name, ("id",), owners.name))
    if composite:
        table.primary_key = (key, "line")
        table.add("line", Type("integer"), _numbered(at) + 1)
    for i in range(int(rng.integers(0, 6))):
        _column(rng, table, i)
    taken[name] = table
    return table


def _degrees(rng: np.random.Generator, owners: Draft, most_rows: int) -> NDArray[np.int64]:
    """How many rows each owner has: about the same, geometric, or with a long tail; more for some traits."""
    room = max(most_rows / max(owners.rows, 1), 0.02)
    mean = min(float(rng.choice([0.3, 1.0, 3.0, 12.0])), room)
    lift = np.array([0.6, 0.9, 1.2, 1.6])[owners.trait]
    match int(rng.integers(3)):
        case 0:
            drawn = rng.poisson(mean * lift)
        case 1:
            drawn = rng.geometric(1 / (1 + mean * lift)) - 1
        case _:
            drawn = np.minimum(rng.zipf(1.7, owners.rows) - 1, 2000) * (rng.random(owners.rows) < min(mean, 1))
    if drawn.sum() > most_rows:
        drawn = rng.binomial(drawn, most_rows / drawn.sum())
    return np.asarray(drawn, dtype=np.int64)


def _numbered(at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the rows of each owner, which lie side by side, from 0."""
    starts = np.r_[0, np.flatnonzero(np.diff(at)) + 1] if len(at) else np.zeros(0, dtype=np.int64)
    return np.arange(len(at)) - np.repeat(starts, np.diff(np.r_[starts, len(at)]))


def _link(rng: np.random.Generator, table: Draft, roots: list[Draft], public: list[Draft]) -> None:
    """Let rows lead to public rows, and sometimes to those of another protected table, by trait and popularity."""
    others = [r for r in roots if r is not table and table.depth]
    for target in (*public, *others):
        if len(target.primary_key) > 1 or rng.random() > (0.5 if target in public else 0.3) or not target.rows:
            continue
        popular = _zipf(target.rows, float(rng.choice([0.0, 0.6, 1.1])))[rng.permutation(target.rows)]
        at = rng.choice(target.rows, table.rows, p=popular)
        for trait in range(TRAITS):  # half of the rows of a trait lead to targets of theirs
            own = target.trait == trait
            rows = np.flatnonzero((table.trait == trait) & (rng.random(table.rows) < 0.5))
            if own.any() and popular[own].sum() > 0:
                at[rows] = rng.choice(np.flatnonzero(own), len(rows), p=popular[own] / popular[own].sum())
        values, some = target.values["id"][at].astype(object), rng.random() < 0.3
        if some:
            values[rng.random(table.rows) < 0.2] = None
        name = f"{target.name}_ref"
        if name not in table.values:
            table.add(name, Type("integer"), list(values), nullable=some)
            table.keys.append(ForeignKey((name,), target.name, ("id",), name))


def _self_reference(rng: np.random.Generator, table: Draft) -> None:
    if len(table.primary_key) > 1 or table.depth > 1 or table.rows < 10 or rng.random() > 0.15:
        return
    up = (np.arange(table.rows) * rng.random(table.rows)).astype(np.int64)  # always a row before, so no circle
    values = table.values["id"][up].astype(object)
    values[rng.random(table.rows) < 0.2] = None
    values[0] = None
    table.add("parent_ref", Type("integer"), list(values), nullable=True)
    table.keys.append(ForeignKey(("parent_ref",), table.name, ("id",), "parent_ref"))


# -- columns -----------------------------------------------------------------------------------------------------------


def _zipf(n: int, power: float) -> NDArray[np.float64]:
    p = 1 / np.arange(1, n + 1) ** power
    return np.asarray(p / p.sum())


def _column(rng: np.random.Generator, table: Draft, i: int) -> None:
    makers = (_category, _category, _amount, _amount, _day, _moment, _number, _flag, _constant, _code, _name_column)
    makers[int(rng.integers(len(makers)))](rng, table, f"c{i}")


def _sparse(rng: np.random.Generator, rows: int) -> tuple[NDArray[np.bool_], bool]:
    """Which values are null: mostly none, sometimes some, seldom nearly all."""
    share = float(rng.choice([0.0, 0.0, 0.0, 0.1, 0.97]))
    return rng.random(rows) < share, share > 0


def _put(rng: np.random.Generator, table: Draft, name: str, kind: Type, values: Any) -> None:
    gone, some = _sparse(rng, table.rows)
    values = np.asarray(values, dtype=object)
    values[gone] = None
    table.add(name, kind, list(values), nullable=some)


def _category(rng: np.random.Generator, table: Draft, name: str) -> None:
    n, power = int(rng.integers(2, 30)), float(rng.choice([0.0, 1.0, 1.6]))
    shift = (np.arange(TRAITS) * rng.integers(0, 3)) % n
    codes = (rng.choice(n, table.rows, p=_zipf(n, power)) + shift[table.trait]) % n
    _put(rng, table, f"{name}_type", Type("text"), np.array([f"{name} {j}" for j in range(n)], dtype=object)[codes])


def _amount(rng: np.random.Generator, table: Draft, name: str) -> None:
    level, spread = float(rng.uniform(0, 9)), float(rng.choice([0.3, 1.0, 2.0]))
    drawn = np.round(np.exp(level + spread * rng.standard_normal(table.rows) + 0.4 * table.trait), 2)
    _put(rng, table, f"{name}_amount", Type("float"), drawn)


def _number(rng: np.random.Generator, table: Draft, name: str) -> None:
    most = int(rng.choice([5, 100, 10_000]))
    _put(rng, table, f"{name}_count", Type("integer"), rng.binomial(most, (0.2 + 0.15 * table.trait)))


def _code(rng: np.random.Generator, table: Draft, name: str) -> None:
    n = int(rng.integers(5, 200))
    codes = rng.choice(100_000, n, replace=False)
    _put(rng, table, f"{name}_code", Type("integer"), codes[rng.choice(n, table.rows, p=_zipf(n, 1.0))])


def _days(rng: np.random.Generator, table: Draft) -> NDArray[np.float64]:
    span = float(rng.choice([7, 365, 3650, 150 * 365]))
    return np.asarray(span * rng.beta(1 + table.trait, 2.0))


def _day(rng: np.random.Generator, table: Draft, name: str) -> None:
    _put(rng, table, f"{name}_date", Type("date"), [TODAY - dt.timedelta(days=int(d)) for d in _days(rng, table)])


def _moment(rng: np.random.Generator, table: Draft, name: str) -> None:
    end = dt.datetime.combine(TODAY, dt.time(12))
    drawn = [end - dt.timedelta(seconds=int(86400 * d)) for d in _days(rng, table)]
    _put(rng, table, f"{name}_at", Type("timestamp"), drawn)


def _flag(rng: np.random.Generator, table: Draft, name: str) -> None:
    _put(rng, table, f"is_{name}", Type("boolean"), rng.random(table.rows) < 0.1 + 0.2 * table.trait)


def _constant(rng: np.random.Generator, table: Draft, name: str) -> None:
    _put(rng, table, f"{name}_const", Type("text"), np.full(table.rows, "EUR", dtype=object))


def _name_column(rng: np.random.Generator, table: Draft, name: str) -> None:
    _put(rng, table, f"{name}_name", Type("text"), [f"Name {i}" for i in rng.integers(10**6, size=table.rows)])
