"""Discrete domains of columns, and the views and cliques over which rows are counted.

A domain is public: declared in the plan, or learned under the budget. Codes of a column run over the domain's own
cells, then one for *other* where the domain has it, then one for null where the column is nullable.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from dpweave.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.schema.database import Column, Type

Scalar: TypeAlias = bool | int | float | str | Decimal | date | datetime | time
Path: TypeAlias = tuple[str, ...]
"""Names of the foreign keys walked from a base table; ``()`` is the base table itself."""

MAX_CELLS = 1_000_000


@dataclass(frozen=True)
class Categories:
    """Listed values; anything else is *other* (where there is one), else null, else the first value."""

    values: tuple[Scalar, ...]
    other: bool = False

    def __post_init__(self) -> None:
        if not self.values and not self.other:
            raise PlanError("a list of categories needs at least one value")
        if len(set(self.values)) != len(self.values):
            raise PlanError("a list of categories names a value twice")

    @property
    def cells(self) -> int:
        """Codes without the one for null."""
        return len(self.values) + self.other


@dataclass(frozen=True)
class Bins:
    """Intervals ``[e0, e1), [e1, e2), ...``. Values outside fall into the first or last."""

    edges: tuple[Scalar, ...]
    step: float | None = None
    """Floats drawn inside a bin are whole multiples of this (0.01 for prices)."""
    spots: tuple[tuple[Scalar, Scalar, float], ...] = ()
    """Where values lie inside bins: intervals ``[from, to)`` with weights. A bin without any is filled evenly."""
    learned: str | None = None
    """How well a learned range was learned: ``well``, ``coarse`` or ``not``
    (:mod:`dpweave.tables.domains.learned_ranges`); None if it was declared.
    """

    def __post_init__(self) -> None:
        if len(self.edges) < 2:
            raise PlanError("bins need at least two edges")
        if any(not a < b for a, b in zip(self.edges, self.edges[1:], strict=False)):  # type: ignore[operator]
            raise PlanError("the edges of bins must rise")
        if any(isinstance(e, float) and not math.isfinite(e) for e in self.edges):
            raise PlanError("the edges of bins must be finite")
        if self.step is not None and not self.step > 0:
            raise PlanError(f"the step of bins must be positive, not {self.step}")
        if self.learned not in (None, "well", "coarse", "not"):
            raise PlanError(f"bins are learned 'well', 'coarse' or 'not', and never {self.learned!r}")
        for start, end, weight in self.spots:
            cell = bisect_right(self.edges, start) - 1
            if cell < 0 or cell == self.cells or not start < end <= self.edges[cell + 1]:  # type: ignore[operator]
                raise PlanError(f"the spot from {start} to {end} does not lie inside one bin")
            if not 0 < weight < math.inf:
                raise PlanError(
                    f"the weight of the spot from {start} to {end} must be positive and finite, not {weight}"
                )

    @property
    def cells(self) -> int:
        """Codes without the one for null."""
        return len(self.edges) - 1


@dataclass(frozen=True)
class Opaque:
    """Not modelled, beyond whether it is null: identifiers and free text are made anew on output."""

    @property
    def cells(self) -> int:
        """Codes without the one for null."""
        return 1


@dataclass(frozen=True)
class Learn:
    """Learned under the budget: categories by private partition selection, bins by private quantiles."""

    low: Scalar | None = None
    high: Scalar | None = None
    bins: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1000:
            raise PlanError(f"bins to learn must be between 1 and 1000, not {self.bins}")


Domain: TypeAlias = Categories | Bins | Opaque
Declared: TypeAlias = Domain | Learn


def size(domain: Domain, *, nullable: bool) -> int:
    """Number of codes.

    >>> size(Categories(("a", "b"), other=True), nullable=True)
    4
    """
    return domain.cells + nullable


def require_fitting(column: Column, domain: Declared) -> None:
    """Refuse a domain that a column's type cannot have, so that coding never fails once rows are read."""
    kind = column.type
    match domain:
        case Opaque():
            return
        case Categories(values=values):
            wrong = next((v for v in values if not _is_value(kind, v)), None)
            if wrong is not None:
                raise PlanError(f"the category {wrong!r} is no value of type {kind}")
        case Learn() if not (kind.ordered or kind.kind == "text"):
            raise PlanError(f"a domain of type {kind} cannot be learned; declare it or make the column opaque")
        case Learn() if kind.ordered:
            for end in (domain.low, domain.high):
                _require_point(kind, end)
        case Learn(low=None, high=None):
            return
        case Learn():
            raise PlanError(f"low and high mean nothing for type {kind}")
        case Bins(edges=edges):
            for edge in edges:
                _require_point(kind, edge, exactly=True)


def _require_point(kind: Type, value: Scalar | None, *, exactly: bool = False) -> None:
    if value is None:
        return
    try:
        fits = not isinstance(value, (bool, str)) and (from_axis(kind, to_axis(kind, value)) == value or not exactly)
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        fits = False
    if not fits:
        raise PlanError(f"{value!r} is no value of type {kind}")


_PYTHON: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "float": (float, int),
    "decimal": (Decimal, int),
    "date": (date,),
    "time": (time,),
    "timestamp": (datetime,),
    "text": (str,),
    "enum": (str,),
    "uuid": (str,),
}


def is_plain(text: str) -> bool:
    r"""Whether every engine can be asked for a text: some cut a query at a NUL, and half a character is no UTF-8.

    >>> is_plain("it's 汉字"), is_plain("a\0b"), is_plain("\ud800")
    (True, False, False)
    """
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _is_value(kind: Type, value: Scalar) -> bool:
    allowed = _PYTHON.get(kind.kind, ())
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind.kind != "boolean"):
        return False
    if kind.kind == "date":
        return not isinstance(value, datetime)
    if isinstance(value, str):
        return is_plain(value)
    if kind.kind == "integer" and isinstance(value, int):
        bits = (kind.bits or 64) - kind.signed
        return bool((-(2**bits) if kind.signed else 0) <= value < 2**bits)
    return not (isinstance(value, float) and not math.isfinite(value))


def even_bins(kind: Type, low: Scalar, high: Scalar, bins: int, *, step: float | None = None) -> Bins:
    """Return bins of equal width over ``[low, high]``, with edges of the column's own type.

    >>> from dpweave.schema.database import Type
    >>> even_bins(Type("integer"), 0, 9, 4).edges, even_bins(Type("integer"), 1, 3, 8).edges
    ((0, 3, 5, 8, 10), (1, 2, 3, 4))
    """
    a, b = to_axis(kind, low), to_axis(kind, high)
    if not a <= b:
        raise PlanError(f"a domain from {low} to {high} is empty; low must not pass high")
    if kind.kind == "float":
        top = b if b > a else math.nextafter(a, math.inf)
        points: list[float] = [a + (top - a) * i / bins for i in range(bins)] + [top]
    else:
        width = int(b) - int(a) + 1
        bins = min(bins, width)
        points = [int(a) - (-width * i // bins) for i in range(bins + 1)]
    return bins_at(kind, points, step=step)


def bins_at(kind: Type, points: Sequence[float], *, step: float | None = None) -> Bins:
    """Return bins with edges at ``points`` of the number line; points that coincide as values are merged."""
    edges = [from_axis(kind, points[0])]
    for point in points[1:]:
        edge = from_axis(kind, point)
        if edge > edges[-1]:  # type: ignore[operator]
            edges.append(edge)
    if len(edges) == 1:
        before = from_axis(kind, points[0] - 1)
        edges.insert(0, before)
    return Bins(tuple(edges), step=step)


_EPOCH = date(1970, 1, 1)


def even_range(kind: Type, bins: Bins) -> dict[str, Scalar | float] | None:
    """Return ``low``, ``high``, ``bins`` and perhaps ``step`` that give these bins, if they are of equal width.

    >>> from dpweave.schema.database import Type
    >>> even_range(Type("integer"), Bins((0, 3, 5, 8, 10))), even_range(Type("integer"), Bins((0, 1, 10)))
    ({'low': 0, 'high': 9, 'bins': 4}, None)
    """
    last = to_axis(kind, bins.edges[-1])
    low, high = bins.edges[0], from_axis(kind, last if kind.kind == "float" else last - 1)
    try:
        even = even_bins(kind, low, high, bins.cells, step=bins.step)
    except PlanError:
        return None
    short: dict[str, Scalar | float] = {"low": low, "high": high, "bins": bins.cells}
    return None if even != bins else short if bins.step is None else short | {"step": bins.step}


def to_axis(kind: Type, value: Scalar) -> float | int:
    """Put an ordered value on a number line: whole numbers, except for floats."""
    match kind.kind:
        case "float":
            return float(value)  # type: ignore[arg-type]
        case "integer":
            return int(value)  # type: ignore[arg-type]
        case "decimal":
            return int((Decimal(str(value)) * 10 ** (kind.scale or 0)).to_integral_value())
        case "date":
            day = value.date() if isinstance(value, datetime) else value
            return day.toordinal() - _EPOCH.toordinal()  # type: ignore[union-attr]
        case "timestamp":
            moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)  # type: ignore[union-attr]
            moment = moment.astimezone(UTC) if moment.tzinfo else moment
            return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(seconds=1)  # exact, up to 9999
        case "time":
            return value.hour * 3600 + value.minute * 60 + value.second  # type: ignore[union-attr]
        case _:
            raise PlanError(f"values of type {kind} cannot be put into bins; list categories or make the column opaque")


def from_axis(kind: Type, point: float) -> Scalar:
    """Invert :func:`to_axis`, exactly for whole numbers."""
    match kind.kind:
        case "float":
            return float(point)
        case "integer":
            return int(point)
        case "decimal":
            return Decimal(int(point)).scaleb(-(kind.scale or 0))
        case "date":
            return date.fromordinal(min(max(_EPOCH.toordinal() + int(point), 1), date.max.toordinal()))
        case "timestamp":
            low, high = (to_axis(kind, m) for m in (datetime.min, datetime.max))
            moment = datetime(1970, 1, 1) + timedelta(seconds=min(max(int(point), int(low)), int(high)))
            return moment.replace(tzinfo=UTC) if kind.zone else moment
        case "time":
            seconds = min(max(int(point), 0), 86_399)
            return time(seconds // 3600, seconds // 60 % 60, seconds % 60)
        case _:
            raise PlanError(f"values of type {kind} cannot be put into bins")


def default_domain(column: Column) -> Declared:
    """What a draft declares for a column that is no key: learn what can be modelled, leave the rest opaque."""
    match column.type.kind:
        case "boolean":
            return Categories((False, True))
        case "enum":
            return Categories(column.type.values)
        case "integer" | "float" | "decimal" | "date" | "timestamp" | "time" | "text":
            return Learn()
        case _:
            return Opaque()


@dataclass(frozen=True, order=True)
class Attribute:
    """A column seen from a base table: walk ``path``, then read ``column`` (perhaps a degree, see below)."""

    column: str
    path: Path = ()


def degree(table: str, key: str) -> str:
    """Name of the derived column of a parent row that counts the rows of ``table`` that lead to it by ``key``.

    >>> degree("orders", "customer_id"), parse_degree("#orders.customer_id")
    ('#orders.customer_id', ('orders', 'customer_id'))

    Tables may have dots in their names, and so may keys, whose are written otherwise.

    >>> degree("shop.orders", "a.b%"), parse_degree(degree("shop.orders", "a.b%"))
    ('#shop.orders.a%2Eb%25', ('shop.orders', 'a.b%'))
    """
    return f"#{table}.{key.replace('%', '%25').replace('.', '%2E')}"


def parse_degree(column: str) -> tuple[str, str] | None:
    """Table and foreign key of a degree column, or None for an ordinary one."""
    if not column.startswith("#"):
        return None
    table, _, key = column[1:].rpartition(".")
    return table, key.replace("%2E", ".").replace("%25", "%")


def presence(key: str) -> str:
    """Name of the derived column of a row that says whether its foreign key ``key`` leads somewhere.

    >>> presence("manager_id"), parse_presence("?manager_id"), parse_presence("age")
    ('?manager_id', 'manager_id', None)
    """
    return f"?{key}"


def parse_presence(column: str) -> str | None:
    """Foreign key of a presence column, or None for another one."""
    return column[1:] if column.startswith("?") else None


def repetition(key: str) -> str:
    """Name of the derived column of an owned row that says whether an earlier row of
    its owner has the same target by ``key``.

    >>> repetition("product_id"), parse_repetition("=product_id"), parse_repetition("age")
    ('=product_id', 'product_id', None)
    """
    return f"={key}"


def parse_repetition(column: str) -> str | None:
    """Foreign key of a repetition column, or None for another one."""
    return column[1:] if column.startswith("=") else None


def newcomer(key: str) -> str:
    """Name of the derived column of a row that says which public row its foreign key ``key`` leads to.

    It is defined for the first row of an owner that leads there, and for each row without an owner.
    A marginal over it counts no other rows: those that repeat a target of their owner are left out.

    >>> newcomer("product_id"), parse_newcomer("@product_id"), parse_newcomer("age")
    ('@product_id', 'product_id', None)
    """
    return f"@{key}"


def parse_newcomer(column: str) -> str | None:
    """Foreign key of a newcomer column, or None for another one."""
    return column[1:] if column.startswith("@") else None


def earlier(column: str, order: str) -> str:
    """Name of the derived column of an owned row that says ``column`` of the row before it, among rows of its owner in
    the ``order`` of another column; of that column itself how far back the row before it is.

    It is null where no row is before it: in the first row, and in one without owner or without place in the order.

    >>> earlier("status", "seen_at"), parse_earlier("<seen_at.status"), parse_earlier("age")
    ('<seen_at.status', ('status', 'seen_at'), None)
    >>> parse_earlier(earlier("a.b", "c.d%"))
    ('a.b', 'c.d%')
    """
    return f"<{order.replace('%', '%25').replace('.', '%2E')}.{column}"


def parse_earlier(column: str) -> tuple[str, str] | None:
    """Column and order of a column that looks at the row before, or None for another one."""
    if not column.startswith("<"):
        return None
    order, _, seen = column[1:].partition(".")
    return seen, order.replace("%2E", ".").replace("%25", "%")


def exactly(column: str) -> str:
    """Name under which rows in the making keep the very points of an ordered column, beside its codes.

    >>> exactly("came")
    '!came'
    """
    return f"!{column}"


STEPS = frozenset({"integer", "date", "timestamp"})
"""Kinds of columns that rows can be ordered by, and how far apart two of them are."""


@dataclass(frozen=True)
class View:
    """The rows of ``base`` joined along foreign keys: at most one row for each base row.

    ``columns`` gives every attribute a name. Rows are counted only where all paths in ``linked`` and all paths
    of the attributes asked for lead somewhere.
    """

    base: str
    columns: tuple[tuple[str, Attribute], ...]
    linked: tuple[Path, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.base, self.columns, self.linked))

    def __getstate__(self) -> dict[str, object]:
        """Leave out what was worked out: hashes of text differ from process to process."""
        return {"base": self.base, "columns": self.columns, "linked": self.linked}

    @cached_property
    def attribute(self) -> Mapping[str, Attribute]:
        """Attributes by their name in this view."""
        return dict(self.columns)

    @classmethod
    def of_table(cls, base: str, columns: tuple[str, ...]) -> View:
        """Return the table itself, with its own columns under their own names."""
        return cls(base, tuple((c, Attribute(c)) for c in columns))

    def paths(self, names: tuple[str, ...]) -> tuple[Path, ...]:
        """All paths that must lead somewhere for a row to be counted over ``names``, prefixes included."""
        wanted = {self.attribute[n].path for n in names} | set(self.linked)
        return tuple(sorted({p[:i] for p in wanted for i in range(1, len(p) + 1)}))
