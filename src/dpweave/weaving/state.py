"""A database in the making: how many rows each table has, their codes, and where each
foreign key leads, by position.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.schema.arrow_codes import encode_table
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Bins, Categories, Opaque, presence
from dpweave.weaving.parts import OwnedRows, Part, SharedRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import ForeignKey
    from dpweave.schema.domain import Attribute, Path

Mask = np.ndarray[Any, Any]


class WeavingState:
    """Rows, codes and links while a database, or a part of one, is woven.

    ``ready`` are the tables that are there from the start: public ones, and those that an earlier part made for all.

    ``links[table, key]`` holds one position of the target table for each row, or -1 where the key leads nowhere.
    ``owned[table, key]`` holds how many rows each row of the target table is to own. It follows these rows.
    """

    def __init__(
        self,
        plan: Plan,
        public: Mapping[str, pa.Table],
        *,
        seed: int,
        part: Part | None = None,
        shared_rows: SharedRows | None = None,
    ) -> None:
        self.plan = plan
        self.part = part or Part()
        self.shared_rows = shared_rows or SharedRows()
        self.ready: dict[str, pa.Table] = {**public, **self.shared_rows.tables}
        self.rows: dict[str, int] = {}
        self.codes: dict[str, dict[str, IntArray]] = {}
        self.links: dict[tuple[str, str], IntArray] = dict(self.shared_rows.links)
        self.owned: dict[tuple[str, str], OwnedRows] = dict(self.shared_rows.owned)
        self._seed = seed
        for name, table in self.ready.items():
            known = self.shared_rows.codes.get(name)
            self.lay(name, table.num_rows, self._encode(name, table) if known is None else known)
            if known is None:
                self._follow(public, name)

    def _encode(self, name: str, table: pa.Table) -> dict[str, IntArray]:
        columns = self.plan.table[name].columns
        codecs = {c.name: Codec(c.column, c.domain) for c in columns if isinstance(c.domain, Categories | Bins)}
        return encode_table(table, codecs)

    def _follow(self, public: Mapping[str, pa.Table], name: str) -> None:
        from dpweave.schema.key_lookup import follow

        for key in self.plan.database[name].foreign_keys:
            self.links[name, key.name] = follow(public, self.plan.database, name, key)

    def rng(self, *what: str, common: bool = False) -> np.random.Generator:
        """Return the random numbers for one purpose, the same whatever else is drawn; if ``common``, in every part."""
        part = [] if common or not self.part.index else [self.part.index]
        return np.random.default_rng([self._seed, *(zlib.crc32(w.encode()) for w in what), *part])

    def part_of(self, name: str) -> Part:
        """The part of a table that is woven here: all of it where it is common to all parts."""
        return Part() if name in self.shared_rows.common else self.part

    def is_divided(self, name: str, key: ForeignKey) -> bool:
        """Whether parts have rows of their own that lead by ``key`` to private rows they have in common."""
        return key.target in self.shared_rows.common and name not in self.shared_rows.common

    def parts_of(self, name: str, key: ForeignKey) -> int:
        """How many parts have rows of their own that lead by ``key`` to the same public or common rows."""
        return self.part.count if self.is_divided(name, key) or key.target in self.plan.public else 1

    def room(self, name: str, key: ForeignKey, bound: int) -> int | IntArray:
        """How many rows of this part may lead to a target by ``key``, one number per target where parts share it.

        All parts together keep the ``bound``.
        """
        if not self.is_divided(name, key):
            return bound
        totals = np.full(self.rows[key.target], bound, dtype=np.int64)
        return self.part.shares(totals, self.part.starts(len(totals), self.rng("bound", name, key.name, common=True)))

    def places(self, name: str, keys: Sequence[ForeignKey]) -> IntArray | None:
        """One number per combination of targets, the same in every part; None where no two parts can have one."""
        if self.part.count == 1 or not all(k.target in self.ready or k.target in self.shared_rows.common for k in keys):
            return None
        place = np.zeros(self.rows[name], dtype=np.int64)
        for key in keys:
            place = place * (self.rows[key.target] + 1) + self.links[name, key.name] + 1
        return place

    def lay(self, name: str, rows: int, codes: Mapping[str, IntArray]) -> None:
        """Give a table its rows."""
        self.rows[name] = rows
        self.codes[name] = dict(codes)

    def resize(self, name: str, rows: int) -> None:
        """Set the number of rows of a pure junction, which has no columns of its own to lose."""
        self._choose(name, np.resize(np.arange(self.rows[name]), rows))

    def take(self, name: str, rows: IntArray) -> None:
        """Let a table that nothing leads to or from yet consist of these of its rows, some perhaps more than once."""
        assert not self.is_linked(name)
        self._choose(name, rows)

    def _choose(self, name: str, rows: IntArray) -> None:
        """Let a table, and what is known of each of its rows, consist of these of them."""
        self.lay(name, len(rows), {c: v[rows] for c, v in self.codes[name].items()})
        for (table, key), owned in self.owned.items():
            if self.plan.database[table].key[key].target == name:
                self.owned[table, key] = owned.of(rows)

    def is_linked(self, name: str) -> bool:
        """Whether rows of a table have targets, or are targets, already."""
        return any(name in (table, self.plan.database[table].key[key].target) for table, key in self.links)

    def keep(self, name: str, keep: Mask) -> None:
        """Leave out rows, and let links that led to them lead nowhere."""
        if keep.all():
            return
        place = np.where(keep, np.cumsum(keep) - 1, -1)
        self._choose(name, np.flatnonzero(keep))
        for (table, key), links in self.links.items():
            moved = links
            if self.plan.database[table].key[key].target == name:
                moved = np.where(links >= 0, place[np.maximum(links, 0)], -1)
            self.links[table, key] = moved[keep] if table == name else moved

    def with_target(self, name: str, key: str) -> IntArray:
        """Rows that get a target: all, or those whose key was drawn as present where it may be null."""
        present = self.codes[name].get(presence(key))
        return np.arange(self.rows[name]) if present is None else np.flatnonzero(present)

    def position(self, base: str, path: Sequence[str]) -> IntArray:
        """Row at the end of ``path`` for every row of ``base``, or -1."""
        at = np.arange(self.rows[base])
        for step in path:
            at = np.where(at >= 0, np.append(self.links[base, step], -1)[at], -1)
            base = self.plan.database[base].key[step].target
        return at

    def units(self, name: str) -> IntArray:
        """Place of the protected unit that owns each row of a table, -1 where it has no owner."""
        return self.position(name, [key for _, key in self.plan.promise.chain(name)])

    def labels(self, name: str, keys: Sequence[ForeignKey]) -> tuple[IntArray, Mask]:
        """One number per combination of targets, and where a target is missing."""
        label, span = np.zeros(self.rows[name], dtype=np.int64), 1
        null = np.zeros(self.rows[name], dtype=bool)
        for key in keys:
            links, size = self.links[name, key.name], self.rows[key.target] + 1
            null |= links < 0
            if span * size >= 1 << 62:
                _, label = np.unique(label, return_inverse=True)
                span = len(label)
            label = label * size + links + 1
            span *= size
        return label, null

    def codec(self, base: str, attribute: Attribute, linked: Sequence[Path] = ()) -> Codec:
        """Return the codec of an attribute as seen from rows of ``base`` that lead somewhere by all of ``linked``."""
        table = self.plan.promise.graph.walk(base, attribute.path)
        derived = self.plan.compile().table[table].derived_codecs
        if attribute.column in derived:
            return derived[attribute.column]
        column = self.plan.table[table].column[attribute.column]
        assert isinstance(column.domain, Categories | Bins | Opaque)
        codec = Codec(column.column, column.domain)
        return codec.optional if self.plan.promise.may_lack(base, attribute.path, tuple(linked)) else codec

    def seen(self, base: str, attribute: Attribute) -> IntArray:
        """Codes of an attribute for every row of ``base``; where its path leads nowhere, that of null."""
        at = self.position(base, attribute.path)
        codes = self.codes[self.plan.promise.graph.walk(base, attribute.path)][attribute.column]
        nowhere = self.codec(base, attribute).null_code if attribute.path else 0
        return np.asarray(np.where(at >= 0, np.append(codes, 0)[at], nowhere), dtype=np.int64)
