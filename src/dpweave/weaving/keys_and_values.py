"""Values of woven rows: keys follow the rows they name, numbers keep them unique, the rest is decoded or made up.

Rows are wired by position first, so cycles, self-references, composite keys and keys that are also foreign keys need no
special order here.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.arrays import running_number
from dpweave.errors import SchemaError
from dpweave.schema.arrow_types import arrow_type
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Bins, Categories, Opaque, exactly
from dpweave.schema.fake_values import PERSON, fake_texts
from dpweave.schema.placeholders import placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.entries import ColumnPlan, TablePlan
    from dpweave.schema.database import ForeignKey, Table
    from dpweave.weaving.state import WeavingState


class Values:
    """Columns of a state as it lies, each resolved once."""

    def __init__(self, state: WeavingState) -> None:
        self._state = state
        self._plan = state.plan
        self._made: dict[tuple[str, str], pa.Array] = {}
        self._pending: set[tuple[str, str]] = set()

    def column(self, name: str, column: str) -> pa.Array:
        """Values of a column, one per row."""
        if name in self._state.ready:
            return self._state.ready[name][column].combine_chunks()
        if (name, column) not in self._made:
            if (name, column) in self._pending:
                raise SchemaError(
                    f"the value of {name}.{column} depends on itself through foreign keys; make one of them nullable"
                )
            self._pending.add((name, column))
            made = self._make(name, column)
            self._pending.discard((name, column))
            self._made[name, column] = made
        return self._made[name, column]

    def _make(self, name: str, column: str) -> pa.Array:
        state = self._state
        plan = self._plan.table[name].column[column]
        dictated = [k for k in self._plan.database[name].foreign_keys if column in k.columns]
        if dictated:
            return self._follow(name, column, dictated)
        if column in self._sequenced[name]:
            return self._numbered(name, column)
        rng = state.rng("values", name, column)
        domain = plan.domain
        if isinstance(domain, Bins) and exactly(column) in state.codes[name]:
            return Codec(plan.column, domain).at(state.codes[name][exactly(column)], state.codes[name][column])
        if isinstance(domain, Categories | Bins):
            return Codec(plan.column, domain).decode(state.codes[name][column], rng)
        return self._made_up(name, column, self._through(name), null=self._null(name, column), unique=False)

    def _null(self, name: str, column: str) -> np.ndarray[Any, Any]:
        """Which rows have no value in a column of which nothing else is modelled. What keys lead to has one."""
        codes, domain = self._state.codes[name], self._plan.table[name].column[column].domain
        led_to = any(
            k.target == name and column in k.target_columns for t in self._plan.database.tables for k in t.foreign_keys
        )
        if column in codes and isinstance(domain, Opaque) and not led_to:
            return np.asarray(codes[column] == 1)
        return np.zeros(self._state.rows[name], dtype=bool)

    def _through(self, name: str) -> IntArray:
        """Number the rows of a table through all parts."""
        return self._state.shared_rows.earlier.rows.get(name, 0) + np.arange(self._state.rows[name])

    def _made_up(
        self, name: str, column: str, number: IntArray, *, null: np.ndarray[Any, Any], unique: bool
    ) -> pa.Array:
        """Values that stand for what is not modelled: of the kind that the plan names, or of the built-in form."""
        import pyarrow as pa
        import pyarrow.compute as pc

        plan, state = self._plan.table[name].column[column], self._state
        if plan.placeholder is not None:
            locale = plan.locale or self._plan.locale
            pool = "person" if plan.placeholder in PERSON else plan.placeholder
            made = fake_texts(
                plan.placeholder,
                self._through(name),  # by row, also where fewer numbers would do: columns of a row speak of one person
                locale=locale,
                pool=int(state.rng("pool", pool, locale, common=True).integers(2**62)),
                order=int(state.rng(*self._speaks_of(name, plan), common=True).integers(2**62)),
                length=plan.column.type.length,
                unique=unique,
            )
            if made is not None:
                return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), made)
        rng = state.rng("values", name, column)
        return placeholders(plan.column, number, null=null, rng=rng, unique=unique)

    def _speaks_of(self, name: str, column: ColumnPlan) -> tuple[str, ...]:
        """What a made-up value is about: the second name, as the second e-mail, is of a second person."""
        if column.placeholder not in PERSON:
            return "placeholder", name, column.name
        alike = [c.name for c in self._plan.table[name].columns if c.placeholder == column.placeholder]
        return "person", name, str(alike.index(column.name))

    def _follow(self, name: str, column: str, keys: list[ForeignKey]) -> pa.Array:
        """Copy the key of the row that is pointed at; the first key that leads somewhere dictates."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = arrow_type(self._plan.database[name].column[column].type)
        result = pa.nulls(self._state.rows[name], kind)
        for key in keys:
            if len(result) and not result.null_count:
                break
            links = self._state.links.get((name, key.name))
            if links is None:  # not wired yet: asked for while its table's turn is still to come
                continue
            theirs = self.column(key.target, key.target_columns[key.columns.index(column)])
            taken = theirs.take(pa.array(links, pa.int64(), mask=links < 0))
            result = pc.coalesce(result, taken.cast(kind))
        described = self._plan.database[name].column[column]
        if result.null_count and not described.nullable:  # a part of keys whose other parts are null here
            made = np.arange(self._state.rows[name])
            rng = self._state.rng("values", name, column)
            result = pc.coalesce(result, placeholders(described, made, null=np.zeros(len(made), dtype=bool), rng=rng))
        return result

    def _numbered(self, name: str, column: str) -> pa.Array:
        return self._made_up(name, column, self.numbers(name, column), null=self._null(name, column), unique=True)

    def numbers(self, name: str, column: str) -> IntArray:
        """Number of each row, in a column that is numbered to keep a key unique."""
        state, number = self._state, self.numbers_here(name, column)
        keys = self._within(name, column)
        if not keys:
            return number + state.shared_rows.earlier.rows.get(name, 0)
        places = state.places(name, keys)
        return number if places is None else number + state.shared_rows.earlier.reached((name, column), places)

    def numbers_here(self, name: str, column: str) -> IntArray:
        """The same as if there were no parts before."""
        keys = self._within(name, column)
        return running_number(self._state.labels(name, keys)[0]) if keys else np.arange(self._state.rows[name])

    def _within(self, name: str, column: str) -> list[ForeignKey]:
        return [k for k in self.numbered_within(name)[column] if (name, k.name) in self._state.links]

    def numbered_within(self, name: str) -> Mapping[str, list[ForeignKey]]:
        """The columns of a table that are numbered, with the foreign keys whose targets they are numbered within."""
        return self._sequenced[name]

    @cached_property
    def _sequenced(self) -> Mapping[str, Mapping[str, list[ForeignKey]]]:
        return {t.name: sequenced(t, self._plan.table[t.name]) for t in self._plan.database}


def sequenced(table: Table, plan: TablePlan) -> dict[str, list[ForeignKey]]:
    """Return the columns that are numbered to keep keys unique, each with the foreign keys it is numbered within.

    Rows agree on the columns of a foreign key where they have the same target, so a number that is unique among rows
    with the same targets makes a key unique whose other columns are all of those keys' columns and no less. Where some
    of its columns belong to keys that have others besides, or the number has to serve two keys, rows are numbered
    through.
    """
    foreign = {c for k in table.foreign_keys for c in k.columns}
    out: dict[str, list[ForeignKey]] = {}
    for unique in (table.primary_key, *table.unique):
        own = [c for c in unique if c not in foreign]
        if not own:
            continue
        serves = next((c for c in own if c in out), None)
        if serves is not None:
            out[serves] = []
            continue
        unmodelled = [c for c in own if plan.column[c].domain is None or isinstance(plan.column[c].domain, Opaque)]
        within = set(unique) & foreign
        keys = [k for k in table.foreign_keys if set(k.columns) <= within]
        out[(unmodelled or own)[-1]] = keys if {c for k in keys for c in k.columns} == within else []
    return out
