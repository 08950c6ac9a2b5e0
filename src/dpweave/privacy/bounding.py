"""Bounding of rows and links (PRIVACY §3): the only maker of bounded rows. Runs in the engine, as Ibis expressions.

Columns are renamed by position (``c0``, ``c1``, ...), so that no name of the user's can collide with ours: ``rid``
numbers the rows of a table, ``to0``, ``to1``, ... hold the ``rid`` of the row that a foreign key leads to, or null.

An embedded engine numbers raw rows itself, so that only keys, hashes and numbers are sorted and stored. Any other
engine numbers and stores whole bounded rows, by their hashes and in their order, which is the same in every query.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import ibis

from dpweave.engines.source_base import EXACT, ROW
from dpweave.errors import SourceError
from dpweave.schema.codec import points

if TYPE_CHECKING:
    from dpweave.engines.source_base import Source
    from dpweave.privacy.promise import Promise
    from dpweave.schema.database import ForeignKey, Table


BUCKETS = 1 << 12
"""Parts, by their hash, in which an engine numbers private rows, so that no task has to see all of them. Public rows
are numbered through, from 0.
"""
DEEP = 2
"""Links that are worked out in one query, at most."""


class Bounding:
    """Rows of every table after both steps of PRIVACY §3.

    Formal guarantees:
      - Step 1 looks at rows of one unit only: removing a unit removes its rows and changes no other row.
      - Step 2 never removes a row: it nulls the links of all but the first ``max_degree`` rows that lead to a
        target, and before that those of a key that stays ``within`` units which lead to another unit (Theorem 7).
      - A row that names a second owner by a *shared* key and has no place there is blank, and so are the rows it
        owns: they keep every place they have and count for nothing, and links to them lead nowhere (Theorem 8).
      - The order of rows is a hash of the row's own key under a salt drawn fresh for
        each fit; it depends on no other row. Rows that agree on all columns are told
        apart by ``rid``, alike for every key: the n-th of them is the n-th for all.
      - Under ``record`` nothing is cut unless ``on_excess = "truncate"``; :meth:`check` refuses what breaks a bound.
    """

    def __init__(self, source: Source, promise: Promise, *, salt: str | None = None) -> None:
        self.source = source
        self.promise = promise
        self._salt = secrets.token_hex(16) if salt is None else salt
        self._numbered = source.embedded
        self._kept: dict[str, Any] = {}
        self._held: dict[str, Any] = {}
        self._linked: dict[str, Any] = {}
        self._blank: dict[str, Any] = {}
        self._cuts = promise.neighbours == "entity" or promise.on_excess == "truncate"

    def check(self, *, require_targets: bool = False) -> None:
        """Refuse data that break what the promise takes for granted. Reads rows,
        releases one bit to whoever runs the fit.

        Declared keys must be unique (otherwise joins would multiply rows), primary keys not null (rows are ordered by
        them); under ``record`` bounds must hold.
        """
        for table in self.promise.database:
            if table.primary_key and not self.source.proves_unique(table.name, table.primary_key):
                rows = self.raw(table.name)
                if self._any(rows.filter(ibis.or_(*(rows[self._c(table, c)].isnull() for c in table.primary_key)))):
                    raise SourceError(
                        f"rows of table {table.name!r} have no {', '.join(table.primary_key)}, which the schema"
                        " declares its primary key; mend the data or the declared key, since the promise counts on it"
                    )
            for columns in self._keys_led_to(table):
                if self.source.proves_unique(table.name, columns):
                    continue
                if self._has_repeats(self.raw(table.name), [self._c(table, c) for c in columns]):
                    raise SourceError(
                        f"rows of table {table.name!r} share the same {', '.join(columns)}, which the schema declares"
                        " unique; mend the data or the declared key, since the promise counts on it"
                    )
        for table in self.promise.database:
            for key in table.foreign_keys:
                self._check_single(table.name, key)
        for name in self.promise.private:
            for key in self.promise.database[name].foreign_keys:
                if require_targets:
                    self._check_targets(name, key)
                if self.promise.is_private(key) and not self._cuts:
                    self._check_bound(name, key)

    def _check_single(self, name: str, key: ForeignKey) -> None:
        """Refuse rows that lead to two rows at once, which unique keys rule out unless
        an engine compares by more than their values.

        Texts may have collations by which different ones are equal, and values of two types are cast to be compared.
        """
        table, there = self.promise.database[name], self.promise.database[key.target]
        types = [
            (table.column[c].type, there.column[t].type) for c, t in zip(key.columns, key.target_columns, strict=True)
        ]
        if all(a == b and a.kind in EXACT for a, b in types):
            return
        rows, targets = self.raw(name), self.raw(key.target).mutate(there=ibis.literal(1, "int8"))
        led = self._follow(table, key, rows, targets, "there", "there")
        once, found = (self.source.fetch(x.aggregate(n=x.count()))["n"][0].as_py() for x in (rows, led))
        if found > once:
            raise SourceError(
                f"rows of {name!r} lead to several rows of {key.target!r} at once by {key.name!r}: the engine takes"
                " different keys there for equal; give both columns the same type and no collation"
            )

    def _keys_led_to(self, table: Table) -> set[tuple[str, ...]]:
        led = {k.target_columns for t in self.promise.database for k in t.foreign_keys if k.target == table.name}
        return {k for k in (table.primary_key, *led) if k}

    def _has_repeats(self, rows: Any, columns: list[str]) -> bool:
        present = rows.filter(*(rows[c].notnull() for c in columns))
        groups = present.group_by(columns).agg(n=ibis._.count()).filter(ibis._.n > 1)
        return self._any(groups)

    def _any(self, rows: Any) -> bool:
        return bool(self.source.fetch(rows.limit(1)).num_rows)

    def _check_targets(self, name: str, key: ForeignKey) -> None:
        table = self.promise.database[name]
        rows = self._follow(table, key, self.raw(name), self.kept(key.target), "rid", "target")
        if self._any(rows.filter(rows.target.isnull(), self._named(name, key, rows))):
            raise SourceError(
                f"rows of {name!r} name rows of {key.target!r} by {key.name!r} that are not there; mend the keys"
            )

    def _check_bound(self, name: str, key: ForeignKey) -> None:
        bound = self.promise.bounds[name, key.name]
        link = self._link_column(name, key)
        rows = self.linked(name)
        over = rows.filter(rows[link].notnull()).group_by(link).agg(n=ibis._.count()).filter(ibis._.n > bound)
        if self._any(over):
            raise SourceError(
                f"some rows of {key.target!r} have more than max_degree = {bound} rows of {name!r} by {key.name!r};"
                " under record neighbours that bound is a promise about the data: raise it, or set on_excess ="
                ' "truncate" in the plan'
            )

    # -- step 1: rows ----------------------------------------------------------------------------------------------

    def rows(self, name: str) -> Any:
        """All columns of the rows of a table that are left after step 1 and count, with ``rid``."""
        kept = self.left(name)
        if not self._numbered:
            return kept
        raw, left = self.raw(name), kept.select(left=kept.rid).view()
        return raw.inner_join(left, raw.rid == left.left).drop("left")

    def left(self, name: str) -> Any:
        """Rows of a table that are left after step 1 and count: what :meth:`kept` has of them, at least."""
        return self.counted(name) if self.promise.may_blank(name) else self.kept(name)

    def kept(self, name: str) -> Any:
        """Rows of a table after step 1: the columns of keys at least, ``rid``, for an owned
        table ``owner`` and, where some key stays within units, ``unit``, the ``rid`` of the
        protected row that each belongs to. Both are null in rows without one.
        """
        if name not in self._kept:
            self._kept[name] = self.source.materialise(self._bounded_rows(self.promise.database[name]))
        return self._kept[name]

    def units(self, name: str) -> Any:
        """Rows of a table that count: ``rid``, and ``top`` and ``level``, which name the unit that each belongs to.

        ``top`` is the ``rid`` of the last row that owning keys lead to, and ``level`` how far below its protected
        table that row's table is: 0 for a protected row, more for one without owner.
        """
        rows, chain = self.left(name), self.promise.chain(name)
        if not chain:
            return rows.select("rid", top=rows.rid, level=ibis.literal(0))
        above = self.units(self.promise.database[name].key[chain[0][1]].target).view()
        return rows.left_join(above, rows.owner == above.rid).select(
            rows.rid, top=above.top.coalesce(rows.rid), level=above.level.coalesce(len(chain))
        )

    def _bounded_rows(self, table: Table) -> Any:
        rows = self.raw(table.name)
        if self._numbered:
            rows = rows.select("rid", *self._narrow_columns(table))
        rows = rows.mutate(place=self._place(table, rows))
        key_name = self.promise.owning.get(table.name)
        if key_name is not None and table.name not in self.promise.public:
            rows = self._keep_first(table, table.key[key_name], rows)
        if not self._numbered:
            many = 1 if table.name in self.promise.public else BUCKETS
            in_bucket = ibis.row_number().over(group_by=rows.place & many - 1, order_by=self.order(table.name, rows))
            rows = rows.mutate(rid=in_bucket.cast("int64") * many + (rows.place & many - 1))
        return rows.mutate(unit=rows.rid) if table.name in self.promise.protected else rows

    def _keep_first(self, table: Table, key: ForeignKey, rows: Any) -> Any:
        """Drop rows beyond the bound of their owner, and all rows whose owner was dropped."""
        owner = self.promise.database[key.target]
        for wanted, name in (("rid", "owner"), ("unit", "unit"))[: 2 if self.promise.within else 1]:
            rows = self._follow(table, key, rows, self.kept(owner.name), wanted, name)
        if owner.name not in self.promise.protected:
            raw = self.raw(owner.name).mutate(there=ibis.literal(1, "int8"))
            rows = self._follow(table, key, rows, raw, "there", "there")
            rows = rows.filter(rows.owner.notnull() | rows.there.isnull()).drop("there")
        if not self._cuts:
            return rows
        rank = ibis.row_number().over(group_by=rows.owner, order_by=self.order(table.name, rows))
        rows = rows.mutate(rank=rank)
        bound = self.promise.bounds[table.name, key.name]
        return rows.filter(rows.owner.isnull() | (rows["rank"] < bound)).drop("rank")

    # -- step 2: links ---------------------------------------------------------------------------------------------

    def linked(self, name: str) -> Any:
        """Rows of a table, blank ones too, with one column per foreign key: the ``rid``
        it leads to after step 2, or null.
        """
        if name not in self._linked:
            table, rows = self.promise.database[name], self._held_links(name)
            for key in table.foreign_keys:
                if self.promise.may_blank(key.target) and not self.promise.is_owning(name, key.name):
                    link = self._link_column(name, key)
                    rows = self._marked(rows, link, key.target)
                    rows = rows.mutate(**{link: ibis.ifelse(rows.blank.isnull(), rows[link], ibis.null("int64"))})
                    rows = self.source.materialise(rows.drop("blank"))
            blankable = self.promise.may_blank(name)
            self._linked[name] = self.source.materialise(self._marked(rows, "rid", name)) if blankable else rows
        return self._linked[name]

    def counted(self, name: str) -> Any:
        """Rows of :meth:`linked` that count: all but blank ones."""
        rows = self.linked(name)
        return rows.filter(rows.blank.isnull()).drop("blank") if self.promise.may_blank(name) else rows

    def _held_links(self, name: str) -> Any:
        """Rows of a table with the ``rid`` that each foreign key has a place at, blank or not."""
        if name not in self._held:
            table = self.promise.database[name]
            rows = self._bounded_links(table)
            plain = all(self.promise.is_owning(name, key.name) for key in table.foreign_keys)
            self._held[name] = rows if plain else self.source.materialise(rows)
        return self._held[name]

    def _blanks(self, name: str) -> Any:
        """The ``rid`` of every blank row: it names a row by a shared key and has no
        place there, or its owner is blank.
        """
        if name not in self._blank:
            table, rows = self.promise.database[name], self._held_links(name)
            flags = []
            for key in table.foreign_keys:
                if self.promise.is_shared(name, key.name):
                    flags.append(self._named(name, key, rows) & rows[self._link_column(name, key)].isnull())
                elif self.promise.is_owning(name, key.name) and self.promise.may_blank(key.target):
                    rows = self._marked(rows, "owner", key.target)
                    flags.append(rows.blank.notnull())
            self._blank[name] = self.source.materialise(rows.filter(ibis.or_(*flags)).select(blank="rid"))
        return self._blank[name]

    def _marked(self, rows: Any, at: str, target: str) -> Any:
        """Add ``blank``: the ``rid`` in column ``at`` where that row of ``target`` is blank, else null."""
        blank = self._blanks(target).view()
        return rows.left_join(blank, rows[at] == blank.blank).select(*(rows[c] for c in rows.columns), blank.blank)

    def _bounded_links(self, table: Table) -> Any:
        rows, deep = self.kept(table.name), 0
        for key in table.foreign_keys:
            if deep == DEEP:  # engines understand queries within queries up to a point
                rows, deep = self.source.materialise(rows), 0
            link = self._link_column(table.name, key)
            if self.promise.is_owning(table.name, key.name):
                rows = rows.mutate(**{link: rows.owner})
                continue
            rows, deep = self._follow(table, key, rows, self.kept(key.target), "rid", link), deep + 1
            if self.promise.is_within(table.name, key.name):
                rows = self._inside(table, key, rows, link)
            if self.promise.is_private(key) and self._cuts:
                rank = ibis.row_number().over(group_by=rows[link], order_by=self.order(table.name, rows))
                rows = rows.mutate(rank=rank)
                keep = rows["rank"] < self.promise.bounds[table.name, key.name]
                rows = rows.mutate(**{link: ibis.ifelse(keep, rows[link], ibis.null("int64"))}).drop("rank")
        return rows

    def _inside(self, table: Table, key: ForeignKey, rows: Any, link: str) -> Any:
        """Let links lead nowhere unless both ends belong to the same protected row, which both must have."""
        rows = self._follow(table, key, rows, self.kept(key.target), "unit", "theirs")
        same = ibis.ifelse(rows.unit == rows.theirs, rows[link], ibis.null("int64"))
        return rows.mutate(**{link: same}).drop("theirs")

    def children(self, name: str, key: ForeignKey) -> Any:
        """Count, per ``rid`` of the target, the rows that lead to it: before its own cut, so degrees keep their tails.

        For an owning key these are all raw rows of the owner, blank or not: they belong to its unit. For another
        key they are the rows that are left after step 1 and count, of which one unit has a bounded number.
        """
        table = self.promise.database[name]
        rows = self.raw(name) if self.promise.is_owning(name, key.name) else self.left(name)
        rows = self._follow(table, key, rows, self.kept(key.target), "rid", "parent")
        return rows.filter(rows.parent.notnull()).group_by(rid=rows.parent).agg(degree=ibis._.count())

    def row_before(self, name: str, column: str, order: str) -> Any:
        """Rows of a table, and as ``said`` what the one before each has in ``column``, or how far back it is if rows
        are in the ``order`` of that column. Those of one owner are in that order, then in that of both steps.

        Formal guarantees:
          - What is said to a row depends on bounded rows of its owner alone, so on one unit (docs/proofs, Theorem 6).
          - Rows without owner, or without a value to order them by, are said nothing and say nothing.
          - No value makes an engine fail: distances are those of values cut to a fixed range.
        """
        whole, linked = self.rows(name), self.linked(name)
        time, value = (whole[self.column_name(name, c)] for c in (order, column))
        says = whole.select(there=whole.rid, time=time, value=points(time) if column == order else value).view()
        rows = linked.inner_join(says, linked.rid == says.there)
        placed = rows.owner.notnull() & rows.time.notnull()
        by = [rows.time, *self.order(name, rows)]
        before = ibis.ifelse(placed, rows.value.lag().over(group_by=[rows.owner, placed], order_by=by), ibis.null())
        return rows.select("rid", said=rows.value - before if column == order else before)

    def present(self, name: str, key_name: str, linked: Any) -> Any:
        """Whether rows of :meth:`linked` have a key: lead somewhere by it, or, where that could
        depend on rows of other units, name a row.
        """
        key = self.promise.database[name].key[key_name]
        return (
            self._named(name, key, linked)
            if self.promise.says_itself(name, key)
            else linked[self._link_column(name, key)].notnull()
        )

    def _named(self, name: str, key: ForeignKey, rows: Any) -> Any:
        return ibis.and_(*(rows[self.column_name(name, c)].notnull() for c in key.columns))

    # -- pieces ----------------------------------------------------------------------------------------------------

    def link_name(self, name: str, key: str) -> str:
        """Name of the column of :meth:`linked` for a foreign key."""
        return self._link_column(name, self.promise.database[name].key[key])

    def _link_column(self, name: str, key: ForeignKey) -> str:
        return f"to{self.promise.database[name].foreign_keys.index(key)}"

    def column_name(self, name: str, column: str) -> str:
        """Name of a column of the user's in our expressions."""
        return self._c(self.promise.database[name], column)

    @staticmethod
    def _c(table: Table, column: str) -> str:
        return f"c{[c.name for c in table.columns].index(column)}"

    def raw(self, name: str, *, alone: str | None = None) -> Any:
        """All rows of a table as the plan reads them, bounded by nothing; with ``rid``
        where the engine numbers them. Of their columns, one ``alone`` or all.
        """
        table = self.promise.database[name]
        alone = alone if alone in table.column else None
        raw = self.source.numbered(name, alone=alone) if self._numbered else self.source.table(name)
        rid = {"rid": raw[ROW]} if self._numbered else {}
        names = table.column if alone is None else (alone,)
        return raw.select(**rid, **{self._c(table, c): raw[c] for c in names})

    def _order_columns(self, table: Table) -> list[str]:
        """Columns that identify a row, but for others that agree on all of them."""
        return [self._c(table, n) for n in table.primary_key or tuple(c.name for c in table.columns)]

    def order(self, name: str, rows: Any) -> list[Any]:
        """What rows of a table are ordered by, in both steps and wherever one comes before another.

        Where ``rid`` is there it comes last, so that rows which agree on all else come
        in the same order for every key. Before that, in an engine that has no numbers
        of its own, only step 1 looks, and it keeps as many of them either way.
        """
        last = [rows.rid] if "rid" in rows.columns else []
        return [rows.place, *(rows[c] for c in self._order_columns(self.promise.database[name])), *last]

    def _narrow_columns(self, table: Table) -> list[str]:
        """Columns that order rows, lead somewhere or are led to."""
        keys = [self._c(table, c) for c in table.key_columns.union(*self._keys_led_to(table))]
        return sorted({*keys, *self._order_columns(table)})

    def _place(self, table: Table, rows: Any) -> Any:
        text, columns = ibis.literal(f"{self._salt}|{table.name}"), self._order_columns(table)
        for column in columns:
            value = rows[column].cast("string").fill_null("")
            # Texts of any length: several of them in a row might be longer than a text may be.
            long = len(columns) > 1 and (rows[column].type().is_string() or rows[column].type().is_binary())
            text = text + "|" + (self.source.hash(value).cast("string") if long else value)
        return self.source.hash(text)

    def _follow(self, table: Table, key: ForeignKey, rows: Any, target: Any, wanted: str, name: str) -> Any:
        """Add ``target[wanted]`` of the row that ``key`` leads to, as column ``name``; null where it leads nowhere."""
        there = self.promise.database[key.target]
        pairs = list(zip(key.columns, key.target_columns, strict=True))
        right = target.select(
            **{f"k{i}": target[self._c(there, c)] for i, (_, c) in enumerate(pairs)}, **{name: target[wanted]}
        ).view()
        on = [rows[self._c(table, c)] == right[f"k{i}"] for i, (c, _) in enumerate(pairs)]
        for c, t in pairs:
            if (
                table.column[c].type.kind != there.column[t].type.kind
                and not rows[self._c(table, c)].type().is_string()
            ):
                # Numbers of two kinds are compared as floats: below this no two whole numbers are taken for one.
                on += [rows[self._c(table, c)] > -(2**53), rows[self._c(table, c)] < 2**53]
        joined = rows.left_join(right, on)
        return joined.select(*(rows[c] for c in rows.columns), right[name])
