"""Exact marginals of bounded views. Everything in here is private; only the Curator may hold it.

Two ways to the same numbers: an embedded engine hands over coded columns once (a byte or two each), which are counted
in this process, some rows or units at a time; any other engine joins and groups where the rows live and returns one row
per occupied cell.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import ibis
import numpy as np

from dpweave.engines.large_arrays import all_of, blocks, in_order, let_go, picked, places_of, room, taken, together
from dpweave.privacy.unit_sums import clipped_sum, clipped_sum_in_engine, moment_sum, share
from dpweave.schema.covering import cover, summed
from dpweave.schema.domain import (
    Attribute,
    newcomer,
    parse_degree,
    parse_earlier,
    parse_newcomer,
    parse_presence,
    parse_repetition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpweave.arrays import IntArray
    from dpweave.privacy.bounding import Bounding
    from dpweave.privacy.window import Columns, UnitMoments, UnitSum
    from dpweave.schema.codec import Codec
    from dpweave.schema.database import ForeignKey
    from dpweave.schema.domain import Path, Scalar, View

T = TypeVar("T")
Codes = np.ndarray[Any, Any]
BLOCK_ROWS, BLOCK_CELLS = 1 << 16, 1 << 16
"""Rows, and cells of a marginal, that are counted at a time, so that both stay in the processor's cache."""
NOBODY = 2**32 - 1
"""Code of a row that is no newcomer; such rows are never counted."""
MANY_ROWS = 1 << 18
"""Rows from which on it pays to count several cliques at once."""


class Counts:
    """Counts views of bounded rows, with the codec of each column as it was declared or learned."""

    def __init__(self, bounding: Bounding) -> None:
        self._bounding = bounding
        self._codecs: dict[tuple[str, str], Codec] = {}
        self._memory: dict[tuple[object, ...], Any] = {}

    def set_codec(self, table: str, column: str, codec: Codec) -> None:
        """Declare how a column is coded, and forget codes made by an earlier declaration."""
        self._codecs[table, column] = codec
        gone = [("codes", table, column), *(("present",) if parse_newcomer(column) else ())]
        self._memory = {
            k: v
            for k, v in self._memory.items()
            if k not in gone and k[0] not in gone and not (k[0] == "seen" and k[2] == column)
        }

    def codec(self, view: View, name: str) -> Codec:
        """Return the codec of a column of a view."""
        return self._codec(view.base, view.attribute[name], view.linked)

    def _codec(self, base: str, attribute: Attribute, linked: tuple[Path, ...] = ()) -> Codec:
        promise, path = self._bounding.promise, attribute.path
        codec = self._codecs[promise.graph.walk(base, path), attribute.column]
        return codec.optional if promise.may_lack(base, path, linked) else codec

    def _shape(self, view: View, columns: Columns) -> tuple[int, ...]:
        return tuple(self.codec(view, name).size for name in columns)

    def has_codec(self, table: str, column: str) -> bool:
        """Whether a column's codes are known."""
        return (table, column) in self._codecs

    def marginals(self, view: View, cliques: Sequence[Columns]) -> tuple[IntArray, ...]:
        """Return one integer array per clique, one axis per column."""
        if not self._bounding.source.embedded:
            return tuple(self._in_engine(view, clique) for clique in cliques)
        found: dict[Columns, IntArray] = {}
        for needs in {self._needs(view, clique) for clique in cliques}:
            alike = [clique for clique in cliques if self._needs(view, clique) == needs]
            found |= self._in_memory(view, alike, self._present(view.base, *needs))
        return tuple(found[clique] for clique in cliques)

    def unit_sum(self, view: View, unit_sum: UnitSum) -> IntArray:
        """Return clipped sums over the units' rows that lead somewhere by all that is
        asked for: columns, then codes.
        """
        sums = self._unit_sum_in_engine if self._bounding.source.sums_in_engine else self._unit_sum_in_memory
        shape = self._shape(view, unit_sum.columns)
        return sums(view, unit_sum, shape).reshape((*shape, len(unit_sum.codes)))

    def unit_moments(self, view: View, moments: UnitMoments, *, most_rows: int) -> IntArray:
        """Return clipped sums of the units' second moments, over rows of all its views; in memory alone."""
        views, promise = moments.views(view), self._bounding.promise
        parts = [self._of_units(one, tuple(c for c in moments.all_columns if c in one.attribute)) for one in views]
        owners = [self._position(one.base, promise.owning_path(one.base, moments.owner)) for one in views]
        out = np.zeros(len(moments.at[0]), dtype=np.int64)
        for few in together(parts):
            columns = []
            for one, (unit, _), owner, rows in zip(views, parts, owners, few, strict=True):
                seen = (
                    picked(self._seen(one.base, one.attribute[c]), rows)
                    if c in one.attribute
                    else np.full(len(rows), -1)
                    for c in moments.all_columns
                )
                columns.append([picked(unit, rows), picked(owner, rows), *seen])
            every = [np.concatenate(column) for column in zip(*columns, strict=True)]
            out += moment_sum(*every, moments=moments, most_rows=most_rows)
        return out

    def categories(self, table: str, column: str, *, length: int) -> dict[str, int]:
        """Weight of each value of a text column: rows, or with a ``length`` above 1 the
        sum of what units give to it. Its keys are private too.

        Texts that are not UTF-8 may come out alike; then the one that most have counts for all of them, so that
        one unit moves no more than it does in one of them. Texts that a collation takes for equal are told apart.
        """
        rows, source = self._bounding.rows(table), self._bounding.source
        text = rows[self._bounding.column_name(table, column)].cast("string")
        values = rows.filter(text.notnull()).select(
            "rid",
            value=text,
            bits=text if source.connection.name == "sqlite" else source.hash(text),  # slow there, and not needed
            k=ibis.literal(1),
        )
        if length > 1:
            units = self._bounding.units(table).view()
            own = values.inner_join(units, values.rid == units.rid).select("value", "bits", "top", "level").distinct()
            values = own.mutate(k=own.value.count().over(group_by=[own.top, own.level]))
        found = source.fetch(values.group_by("value", "bits", "k").agg(n=ibis._.count()).drop("bits"))
        weights: Counter[str] = Counter()
        # Of texts that come out alike the one that most have comes last and stays.
        alike = {(one["value"], one["k"]): one["n"] for one in sorted(found.to_pylist(), key=lambda one: one["n"])}
        for (value, k), n in alike.items():
            weights[value] += n * share(k, length=length)
        return weights

    def public_keys(self, key: ForeignKey) -> tuple[Scalar, ...]:
        """Keys of the public rows that ``key`` leads to, by their ``rid``; none where
        these have gaps or keys repeat.
        """
        rows = self._bounding.kept(key.target)
        value = rows[self._bounding.column_name(key.target, key.target_columns[0])]
        found = self._bounding.source.fetch(rows.select(rows.rid, value=value).order_by("rid"))
        keys = tuple(found["value"].to_pylist())
        distinct = len(set(keys) - {None}) == len(keys) and found["rid"].to_pylist() == list(range(len(keys)))
        return keys if distinct else ()

    # -- in memory -------------------------------------------------------------------------------------------------

    def _in_memory(self, view: View, cliques: Sequence[Columns], there: Codes | None) -> dict[Columns, IntArray]:
        """Count cliques that need the same paths: a block of columns at a time, of which theirs are sums."""
        at = self._position(view.base, ())
        rows = self._length(view.base) if at is None else len(at)
        sizes = {name: self.codec(view, name).size for clique in cliques for name in clique}
        found: dict[Columns, IntArray] = {}
        alone = [(clique, [clique]) for clique in cliques]
        for block, inside in cover(cliques, sizes, limit=BLOCK_CELLS) if rows >= MANY_ROWS else alone:
            codes = [self._seen(view.base, view.attribute[name]) for name in block]
            counts = _histogram(codes, tuple(sizes[name] for name in block), there, rows=rows)
            found |= {clique: summed(counts, block, clique) for clique in inside}
        return found

    def _of_units(self, view: View, columns: Columns) -> tuple[Codes, Codes]:
        """Return each row's unit, and unit by unit the rows that have one and lead somewhere by all of ``columns``."""
        unit = self._position(view.base, self._bounding.promise.owning_path(view.base))
        key = ("present", view.base, *self._needs(view, columns))
        return unit, self._once((*key, "in order"), lambda: in_order(unit, self._present(*key[1:])))

    def _unit_sum_in_memory(self, view: View, unit_sum: UnitSum, shape: tuple[int, ...]) -> IntArray:
        unit, every = self._of_units(view, unit_sum.all_columns)
        out = np.zeros((math.prod(shape), len(unit_sum.codes)), dtype=np.int64)
        for (rows,) in together([(unit, every)]):
            codes = {name: picked(self._seen(view.base, view.attribute[name]), rows) for name in unit_sum.all_columns}
            at = (np.zeros(len(rows), dtype=np.int64), *(codes[name] for name in unit_sum.columns))
            cells = np.ravel_multi_index(at, (1, *shape), mode="clip")
            out += clipped_sum(picked(unit, rows), cells, codes, unit_sum, size=len(out))
        return out

    def _needs(self, view: View, clique: Columns) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """Paths that must lead somewhere, and keys by which a row must be a newcomer, for it to count."""
        keys = [parse_newcomer(view.attribute[name].column) for name in clique]
        required = {self._bounding.promise.required(view.base, path, view.linked) for path in view.paths(clique)}
        every = {path[:i] for path in (*required, *view.linked) for i in range(1, len(path) + 1)}
        return tuple(sorted(every)), tuple(key for key in keys if key)

    def _present(self, base: str, paths: tuple[Path, ...], keys: tuple[str, ...]) -> Codes | None:
        """Rows whose paths all lead somewhere and which are newcomers by ``keys``; None where that is every row."""

        def make() -> Codes | None:
            new = ((self._seen(base, Attribute(newcomer(key))), np.not_equal, NOBODY) for key in keys)
            return all_of([*((self._position(base, path), np.greater_equal, 0) for path in paths), *new])

        return self._once(("present", base, paths, keys), make) if paths or keys else None

    def _seen(self, base: str, attribute: Attribute) -> Codes:
        """Codes of an attribute for every bounded row of the base; those that lead nowhere are masked by the caller."""
        column, path = attribute.column, attribute.path
        table = self._bounding.promise.graph.walk(base, path)

        def make() -> Codes:
            codec = self._codec(base, attribute)
            small = np.promote_types(self._codes(table, column).dtype, np.min_scalar_type(codec.null_code))
            return taken(self._codes(table, column), self._position(base, path), codec.null_code, small)

        return self._once(("seen", base, column, path), make)

    def _position(self, base: str, path: Path) -> Any:
        """``rid`` at the end of ``path`` for every row of the base that counts, or -1;
        None where each row is its own.
        """

        def make() -> Codes | None:
            if path:
                here = self._bounding.promise.graph.walk(base, path[:-1])
                return taken(self._links(here, path[-1]), self._position(base, path[:-1]), -1)
            left = self._bounding.left(base)
            there = self._fetch(left, left.rid.notnull(), room(self._length(base), bool))
            return None if all_of([(there, np.equal, True)]) is None else places_of(there)

        return self._once(("position", base, path), make)

    def _links(self, table: str, key_name: str) -> Codes:
        """``rid`` that a key leads to for every raw row, or -1."""

        def make() -> Codes:
            target = self._bounding.promise.database[table].key[key_name].target
            rows = self._bounding.linked(table)
            link = rows[self._bounding.link_name(table, key_name)].fill_null(-1)
            small = np.min_scalar_type(-1 - self._length(target))
            return self._fetch(rows, link, room(self._length(table), small, -1))

        return self._once(("link", table, key_name), make)

    def _codes(self, table: str, column: str) -> Codes:
        """Codes of a column for every row with a number. One that was left out has no position, so its code is never
        seen.
        """

        def make() -> Codes:
            rows, code = self._coded(
                self._bounding.raw(table, alone=column)
                if self._bounding.source.embedded
                else self._bounding.kept(table),
                table,
                column,
            )
            if parse_newcomer(column):
                return self._fetch(rows, code.fill_null(NOBODY), room(self._length(table), np.uint32, NOBODY))
            small = np.min_scalar_type(max(self._codecs[table, column].size - 1, 0))
            return self._fetch(rows, code, room(self._length(table), small))

        return self._once(("codes", table, column), make)

    def _length(self, table: str) -> int:
        """Numbers that raw rows may have: from 0 to one below this."""

        def make() -> int:
            rows = self._bounding.raw(table) if self._bounding.source.embedded else self._bounding.kept(table)
            last = self._bounding.source.fetch(rows.aggregate(last=rows.rid.max()))["last"][0].as_py()
            return 0 if last is None else int(last) + 1

        return self._once(("length", table), make)

    def _once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        if key not in self._memory:
            self._memory[key] = make()
        return cast("T", self._memory[key])

    def _fetch(self, rows: Any, expression: Any, out: Codes) -> Codes:
        """Read one column into ``out``, each value at its row's ``rid``."""
        for batch in self._bounding.source.stream(rows.select(rows.rid, value=expression)):
            out[batch["rid"].to_numpy()] = batch["value"].to_numpy(zero_copy_only=False)
            let_go(out)
        return out

    # -- in the engine ---------------------------------------------------------------------------------------------

    def _in_engine(self, view: View, clique: Columns) -> IntArray:
        rows, names = self._rows_in_engine(view, clique), [f"code{i}" for i in range(len(clique))]
        cells = self._bounding.source.fetch(rows.aggregate(n=ibis._.count(), by=names))
        out = np.zeros(self._shape(view, clique), dtype=np.int64)
        out[tuple(cells[n].to_numpy() for n in names)] = cells["n"].to_numpy() if names else cells["n"][0].as_py()
        return out

    def _unit_sum_in_engine(self, view: View, unit_sum: UnitSum, shape: tuple[int, ...]) -> IntArray:
        """The same where the rows live."""
        unit_path = self._bounding.promise.owning_path(view.base)
        rows, cell = self._rows_in_engine(view, unit_sum.all_columns, unit_path), ibis.literal(0, "int64")
        for i, length in enumerate(shape):  # its columns are the first that it reaches
            cell = cell * length + rows[f"code{i}"]
        rows = self._bounding.source.materialise(
            rows.select(ibis.selectors.startswith("code"), unit=rows[_at(unit_path)], cell=cell)
        )
        return clipped_sum_in_engine(self._bounding.source, rows, unit_sum, size=math.prod(shape))

    def _rows_in_engine(self, view: View, clique: Columns, through: Path = ()) -> Any:
        """Rows that count over ``clique``, with their codes as ``code0`` and so on, and the ends of all paths that
        this takes; ``through`` is one more that must lead somewhere.
        """
        promise = self._bounding.promise
        rows = self._bounding.counted(view.base).mutate(p=ibis._.rid)
        needed = {*self._needs(view, clique)[0], *(through[: i + 1] for i in range(len(through)))}
        for path in sorted({*view.paths(clique), *needed}):
            how = "inner" if path in needed else "left"
            rows = self._step(rows, promise.graph.walk(view.base, path[:-1]), path, how)
        for i, name in enumerate(clique):
            attribute = view.attribute[name]
            table = promise.graph.walk(view.base, attribute.path)
            own, code = self._coded(self._bounding.rows(table), table, attribute.column)
            coded = own.select(r=own.rid, **{f"code{i}": code}).view()
            how = "inner" if attribute.path in ((), *needed) else "left"
            rows = rows.join(coded, rows[_at(attribute.path)] == coded.r, how=how).drop("r")
            if how == "left":
                rows = rows.mutate(**{f"code{i}": rows[f"code{i}"].fill_null(self.codec(view, name).null_code)})
            if parse_newcomer(attribute.column):
                rows = rows.filter(rows[f"code{i}"].notnull())
        return rows

    def _step(self, rows: Any, here: str, path: Path, how: str) -> Any:
        """Add the row number at the end of ``path``, dropping rows that lead nowhere if the join is ``inner``."""
        links = self._bounding.linked(here)
        link = links[self._bounding.link_name(here, path[-1])]
        step = links.filter(link.notnull()).select(r=links.rid, **{_at(path): link}).view()
        return rows.join(step, rows[_at(path[:-1])] == step.r, how=how).drop("r")

    # -- coding ----------------------------------------------------------------------------------------------------

    def _coded(self, rows: Any, table: str, column: str) -> tuple[Any, Any]:
        """Return rows and the expression of a column's code over them; null where a row is no newcomer."""
        codec = self._codecs[table, column]
        counted = parse_degree(column)
        if counted is not None:
            child, key_name = counted
            per = self._bounding.children(child, self._bounding.promise.database[child].key[key_name]).view()
            joined = rows.left_join(per, rows.rid == per.rid).select(rows.rid, degree=per.degree.fill_null(0))
            return joined, codec.encode(joined.degree.cast("int64"), has_nan=False)
        if (said := parse_earlier(column)) is not None:
            rows = self._bounding.row_before(table, *said)
            return codec.coded(rows, rows.said, has_nan=self._bounding.source.connection.name != "sqlite")
        key = parse_presence(column) or parse_repetition(column) or parse_newcomer(column)
        if key is not None:
            linked = self._bounding.linked(table)
            link = linked[self._bounding.link_name(table, key)]
            if parse_presence(column):
                return linked, self._bounding.present(table, key, linked).cast("int32")
            owned = table in self._bounding.promise.owning
            again = _repeats(linked, link, self._bounding.order(table, linked)) if owned else ibis.literal(False)
            if parse_repetition(column):
                return linked, again.cast("int32")
            return linked, ibis.ifelse(again | (link >= codec.size), ibis.null("int64"), link)
        value = rows[self._bounding.column_name(table, column)]
        return codec.coded(rows, value, has_nan=self._bounding.source.connection.name != "sqlite")


def _repeats(linked: Any, link: Any, order: list[Any]) -> Any:
    """Whether a row's owner has an earlier row, in the order of both steps of bounding,
    whose ``link`` leads to the same target.
    """
    so_far = linked.rid.count().over(rows=(None, 0), group_by=[linked.owner, link], order_by=order)
    return linked.owner.notnull() & link.notnull() & (so_far > 1)


def _histogram(codes: Sequence[Codes], shape: tuple[int, ...], there: Codes | None, *, rows: int) -> IntArray:
    """Count rows per cell; ``there`` masks those that count."""
    out = np.zeros(int(np.prod(shape)), dtype=np.int64)
    for block in blocks(rows, there, *codes, rows=BLOCK_ROWS):
        cell = np.zeros(block.stop - block.start, dtype=np.uint32)  # MAX_CELLS is far below its end
        for column, length in zip(codes, shape, strict=True):
            cell *= np.uint32(length)
            cell += column[block]
        out += np.bincount(cell if there is None else cell[there[block]], minlength=len(out))
    return out.reshape(shape)


def _at(path: Path) -> str:
    return "p" + "".join(f"_{len(step)}{step}" for step in path)
