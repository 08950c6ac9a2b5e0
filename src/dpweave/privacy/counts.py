"""Exact marginals of bounded views. Everything in here is private; only the Curator may hold it.

Two ways to the same numbers: an embedded engine hands over coded columns once (a byte or two each), which are counted
in memory; any other engine joins and groups where the rows live and returns one row per occupied cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.schema.domain import parse_degree, parse_presence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.privacy.bounding import Bounding
    from dpweave.privacy.window import Columns, IntArray
    from dpweave.schema.codec import Codec
    from dpweave.schema.domain import Attribute, Path, View

Codes = np.ndarray[Any, Any]
BLOCK_ROWS = 1 << 16


class Counts:
    """Counts views of bounded rows, with the codec of each column as it was declared or learned."""

    def __init__(self, bounding: Bounding) -> None:
        self._bounding = bounding
        self._codecs: dict[tuple[str, str], Codec] = {}
        self._memory: dict[tuple[object, ...], Codes] = {}

    def set_codec(self, table: str, column: str, codec: Codec) -> None:
        """Declare how a column is coded, and forget codes made by an earlier declaration."""
        self._codecs[table, column] = codec
        self._memory = {k: v for k, v in self._memory.items() if k[0] not in ("codes", "seen")}

    def codec(self, view: View, name: str) -> Codec:
        """Return the codec of a column of a view."""
        attribute = view.attribute[name]
        table = self._bounding.promise.graph.walk(view.base, attribute.path)
        return self._codecs[table, attribute.column]

    def has_codec(self, table: str, column: str) -> bool:
        """Whether a column's codes are known."""
        return (table, column) in self._codecs

    def marginals(self, view: View, cliques: Sequence[Columns]) -> tuple[IntArray, ...]:
        """Return one integer array per clique, one axis per column."""
        count = self._in_memory if self._bounding.source.embedded else self._in_engine
        return tuple(count(view, clique) for clique in cliques)

    def categories(self, table: str, column: str) -> dict[str, int]:
        """How often each value of a text column occurs; its keys are private too."""
        import ibis

        rows = self._bounding.rows(table)
        name = self._bounding.column_name(table, column)
        present = rows.filter(rows[name].notnull()).select(value=rows[name].cast("string"))
        found = self._bounding.source.fetch(present.group_by("value").agg(n=ibis._.count()))
        total: dict[str, int] = {}
        for value, n in zip(found["value"].to_pylist(), found["n"].to_pylist(), strict=True):
            total[value] = total.get(value, 0) + n  # texts that are not UTF-8 may come out alike
        return total

    # -- in memory -------------------------------------------------------------------------------------------------

    def _in_memory(self, view: View, clique: Columns) -> IntArray:
        shape = tuple(self.codec(view, name).size for name in clique)
        there = self._present(view.base, view.paths(clique))
        if not clique:
            rows = self._size(view.base) if there is None else int(there.sum())
            return np.array(rows, dtype=np.int64)
        codes = [self._seen(view.base, view.attribute[name]) for name in clique]
        return _histogram(codes, shape, there)

    def _size(self, table: str) -> int:
        key = ("size", table)
        if key not in self._memory:
            self._memory[key] = np.array(self._number(self._bounding.linked(table)))
        return int(self._memory[key])

    def _present(self, base: str, paths: tuple[Path, ...]) -> Codes | None:
        """Rows whose paths all lead somewhere; None where that is every row."""
        if not paths:
            return None
        key = ("present", base, paths)
        if key not in self._memory:
            self._memory[key] = np.logical_and.reduce([self._position(base, path) >= 0 for path in paths])
        there = self._memory[key]
        return None if there.all() else there

    def _seen(self, base: str, attribute: Attribute) -> Codes:
        """Codes of an attribute for every base row; rows that lead nowhere get code 0 and are masked by the caller."""
        table = self._bounding.promise.graph.walk(base, attribute.path)
        codes = self._codes(table, attribute.column)
        if not attribute.path:
            return codes
        key = ("seen", base, attribute)
        if key not in self._memory:
            at = self._position(base, attribute.path)
            padded = codes if len(codes) else np.zeros(1, dtype=codes.dtype)
            self._memory[key] = np.where(at >= 0, padded[np.maximum(at, 0)], 0).astype(codes.dtype)
        return self._memory[key]

    def _position(self, base: str, path: Path) -> Codes:
        """Row of the table at the end of ``path`` for every base row, or -1."""
        key = ("position", base, path)
        if key not in self._memory:
            graph = self._bounding.promise.graph
            here = graph.walk(base, path[:-1])
            link = self._links(here, path[-1])
            if len(path) > 1:
                before = self._position(base, path[:-1])
                padded = link if len(link) else np.full(1, -1, dtype=np.int64)
                link = np.where(before >= 0, padded[np.maximum(before, 0)], -1)
            self._memory[key] = link
        return self._memory[key]

    def _links(self, table: str, key_name: str) -> Codes:
        key = ("link", table, key_name)
        if key not in self._memory:
            rows = self._bounding.linked(table)
            link = rows[self._bounding.link_name(table, key_name)].fill_null(-1).cast("int64")
            self._memory[key] = self._fetch(rows, link).astype(np.int64)
        return self._memory[key]

    def _codes(self, table: str, column: str) -> Codes:
        key = ("codes", table, column)
        if key not in self._memory:
            rows, code = self._coded(self._bounding.rows(table), table, column)
            small = np.min_scalar_type(max(self._codecs[table, column].size - 1, 0))
            self._memory[key] = self._fetch(rows, code).astype(small)
        return self._memory[key]

    def _fetch(self, rows: Any, expression: Any) -> Codes:
        """Read one integer column in the order of rows; ``rid`` numbers them from 0, so no sort is needed."""
        found = self._bounding.source.fetch(rows.select(rows.rid, value=expression))
        values = found["value"].to_numpy()
        out: Codes = np.empty_like(values)
        out[found["rid"].to_numpy()] = values
        return out

    def _number(self, rows: Any) -> int:
        """Count rows in the engine."""
        return int(self._bounding.source.fetch(rows.aggregate(n=rows.count()))["n"][0].as_py())

    # -- in the engine ---------------------------------------------------------------------------------------------

    def _in_engine(self, view: View, clique: Columns) -> IntArray:
        import ibis

        promise = self._bounding.promise
        rows = self._bounding.linked(view.base).mutate(p=ibis._.rid)
        for path in view.paths(clique):
            here = promise.graph.walk(view.base, path[:-1])
            rows = self._step(rows, here, path)
        names = []
        for i, name in enumerate(clique):
            attribute = view.attribute[name]
            table = promise.graph.walk(view.base, attribute.path)
            own, code = self._coded(self._bounding.rows(table), table, attribute.column)
            coded = own.select(r=own.rid, **{f"code{i}": code}).view()
            rows = rows.inner_join(coded, rows[_at(attribute.path)] == coded.r).drop("r")
            names.append(f"code{i}")
        if not clique:
            return np.array(self._number(rows), dtype=np.int64)
        cells = self._bounding.source.fetch(rows.group_by(names).agg(n=ibis._.count()))
        out = np.zeros(tuple(self.codec(view, name).size for name in clique), dtype=np.int64)
        out[tuple(cells[n].to_numpy() for n in names)] = cells["n"].to_numpy()
        return out

    def _step(self, rows: Any, here: str, path: Path) -> Any:
        """Add the row number at the end of ``path``, dropping rows that lead nowhere."""
        links = self._bounding.linked(here)
        link = links[self._bounding.link_name(here, path[-1])]
        step = links.filter(link.notnull()).select(r=links.rid, **{_at(path): link}).view()
        return rows.inner_join(step, rows[_at(path[:-1])] == step.r).drop("r")

    # -- coding ----------------------------------------------------------------------------------------------------

    def _coded(self, rows: Any, table: str, column: str) -> tuple[Any, Any]:
        """Return rows and the expression of a column's code over them."""
        codec = self._codecs[table, column]
        counted = parse_degree(column)
        if counted is not None:
            child, key_name = counted
            per = self._bounding.children(child, self._bounding.promise.database[child].key[key_name]).view()
            joined = rows.left_join(per, rows.rid == per.rid).select(rows.rid, degree=per.degree.fill_null(0))
            return joined, codec.encode(joined.degree.cast("int64"), has_nan=False)
        key = parse_presence(column)
        if key is not None:
            linked = self._bounding.linked(table)
            return linked, linked[self._bounding.link_name(table, key)].notnull().cast("int32")
        value = rows[self._bounding.column_name(table, column)]
        return codec.coded(rows, value, has_nan=self._bounding.source.connection.name != "sqlite")


def _histogram(codes: Sequence[Codes], shape: tuple[int, ...], there: Codes | None) -> IntArray:
    """Count rows per cell, block by block, so that the cell numbers of a block stay in the processor's cache."""
    out = np.zeros(int(np.prod(shape)), dtype=np.int64)
    for start in range(0, len(codes[0]), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        cell = codes[0][block].astype(np.intp)
        for column, length in zip(codes[1:], shape[1:], strict=True):
            cell *= length
            cell += column[block]
        out += np.bincount(cell if there is None else cell[there[block]], minlength=len(out))
    return out.reshape(shape)


def _at(path: Path) -> str:
    return "p" + "".join(f"_{len(step)}{step}" for step in path)
