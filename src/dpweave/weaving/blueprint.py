"""What a database is woven from, and what follows from it without weaving: sizes, shares, degrees."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import degrees_of, match_total, reweighed
from dpweave.schema.domain import Bins, presence
from dpweave.tables.external import ExternalTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.plan.plan import Plan
    from dpweave.tables.base import FittedTable


MOST_UNSEEN = 1000
"""Degrees may call for so many times the rows that were counted within bounds: a limit on memory, where noise is all
there is.
"""
_PILOT = 2000
"""Rows from which the mean degree of a table's rows is guessed before any are woven."""


@dataclass(frozen=True)
class Blueprint:
    """What a database is woven from: everything public or released."""

    plan: Plan
    sizes: Mapping[str, float]
    """Number of rows of each private table within bounds: noisy, or from a public one."""
    tables: Mapping[str, FittedTable]
    public: Mapping[str, pa.Table]
    degrees: Mapping[tuple[str, str], tuple[tuple[int, ...], IntArray]] = field(default_factory=dict)
    """For owning keys, as (table, key): buckets of degrees and their noisy counts over the owners."""
    repetitions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """For junctions whose pairs may repeat: the share of linked rows that do, and its standard error."""
    loose: Mapping[str, float] = field(default_factory=dict)
    """By how many rows degrees that are drawn may differ from a table's size
    (:class:`dpweave.tables.owned_row_counts.Rows`).
    """
    popularity: Mapping[tuple[str, str], FloatArray] = field(default_factory=dict)
    """For keys to public tables, as (table, key), whose targets were counted one by
    one: how often each is led to, mean 1.
    """

    def whole(self, table: str) -> float:
        """Rows of a table at scale 1: a public number, those that were given, where
        it was made elsewhere, else its noisy size.
        """
        fitted, declared = self.tables.get(table), self.plan.table[table].public_rows
        if declared is not None:
            return float(declared)
        return float(fitted.given_rows) if isinstance(fitted, ExternalTable) else self.sizes[table]

    def share(self, table: str, key: str) -> float:
        """Share of rows whose foreign key leads somewhere."""
        if presence(key) not in self.plan.compile().table[table].presence_codecs:
            return 1.0
        none, some = np.maximum(self.tables[table].marginal((presence(key),)), 0.0)
        return float(some / (none + some)) if none + some > 0 else 0.0

    @cached_property
    def kept(self) -> Mapping[str, float]:
        """Share of a table's rows that bounds on what one row owns leave to be counted,
        by what degrees say of the others.
        """
        whole = self.expected_rows(1.0)
        return {name: size / whole[name] if 0 < size < whole[name] else 1.0 for name, size in self.sizes.items()}

    def lost_links(self, table: str, key: str) -> float:
        """Share of the rows without a target by a key that have one in truth: its row was
        cut off by its owner's bound, and the key goes by where it leads.

        Of links to rows of which a share k is kept, a share k is seen. So if s of the
        rows have a target that is seen, about min(s/k, 1) have one.
        """
        foreign, promise, seen = self.plan.database[table].key[key], self.plan.promise, self.share(table, key)
        if not promise.is_private(foreign) or promise.is_owning(table, key) or not 0 < seen < 1:
            return 0.0
        hidden = 0.0 if promise.says_itself(table, foreign) else 1 - self.kept[foreign.target]
        return (min(seen / (1 - hidden), 1.0) - seen) / (1 - seen)

    def degrees_by_code(self, table: str, key: str, codes: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw how many rows of ``table`` lead by ``key`` to rows with these codes of their degree."""
        groups = self._degree_groups(table, key)
        fine, counts = self.degrees.get(
            (table, key), (tuple(groups.tolist()), np.ones(len(groups) - 1, dtype=np.int64))
        )
        return degrees_of(codes, groups, np.array(fine), counts, rng)

    def agreeing(self, table: str, key: str, degrees: IntArray, rng: np.random.Generator) -> IntArray:
        """Scale degrees so that bounds leave about as many rows of ``table`` per owner as were counted.

        Degrees come from a table model and from buckets, each with noise of its own, and larger ones than stand out of
        it are not seen. Of rows that may lack an owner, the number that have one is known less well, so that degrees
        are never lowered to it. Of rows that may be blank (Theorem 8) fewer are counted than owners have, so that their
        degrees stand.
        """
        bound, most = self.plan.promise.bounds[table, key], int(self._degree_groups(table, key)[-1]) - 1
        if self.plan.promise.may_blank(table):
            return degrees
        times = len(degrees) / max(self.sizes[self.plan.database[table].key[key].target], 1.0)
        kept = int(np.minimum(degrees, bound).sum())
        wanted, room = (x * times for x in (self.sizes[table] * self.share(table, key), self.loose.get(table, 0.0)))
        wanted = min(max(kept, wanted - room), wanted + room)
        if presence(key) in self.plan.compile().table[table].presence_codecs:
            wanted = max(wanted, kept)
        total = min(round(wanted * (degrees.sum() / kept if kept else 1.0)), most * len(degrees))
        return match_total(reweighed(degrees, total, rng), total, cap=most, rng=rng)

    def exactly(self, table: str, key: str, degrees: IntArray, total: int, rng: np.random.Generator) -> IntArray:
        """Scale degrees so that they add up to the ``total`` of a public number of
        rows, as far as declared limits allow.

        The largest degree that stands out of noise is no limit here: the number is
        certain, and how large degrees get is not.
        """
        most = max(int(self._degree_groups(table, key)[-1]) - 1, -(-total // max(len(degrees), 1)))
        planned = self.plan.table[table].key[key]
        if self.plan.compile().table[table].key[key].is_single:
            most = 1
        elif planned.degree_cap is not None:
            most = min(most, planned.degree_cap)
        elif self.plan.neighbours == "record" and self.plan.on_excess == "refuse":
            most = min(most, self.plan.promise.bounds[table, key])
        total = min(total, most * len(degrees))
        return match_total(reweighed(degrees, total, rng), total, cap=most, rng=rng)

    def pilot_degrees(self, table: str) -> IntArray:
        """How many rows of ``table`` some owners have, drawn before any are woven."""
        rng, key = np.random.default_rng(0), self.plan.compile().table[table].key[self.plan.promise.owning[table]]
        if not key.is_counted or self.only_total(table, key.name) is not None:
            mean = self.sizes[table] * self.share(table, key.name) / max(self.sizes[key.target], 1.0)
            return rng.poisson(mean, _PILOT)
        codes = self.tables[key.target].sample(_PILOT, rng)[key.degree]
        return self.agreeing(table, key.name, self.degrees_by_code(table, key.name, codes, rng), rng)

    def only_total(self, table: str, key: str) -> int | None:
        """The largest degree where nothing is known of degrees but their sum, else None."""
        groups = self._degree_groups(table, key)
        return int(groups[1]) - 1 if len(groups) == 2 else None

    def _degree_groups(self, table: str, key: str) -> IntArray:
        domain = self.plan.compile().table[table].key[key].degree_codec.domain
        assert isinstance(domain, Bins)
        return np.array(domain.edges, dtype=np.int64)

    def counted_total(self, table: str, key: str) -> float:
        """Rows that all owners by a key have at scale 1, where nothing but their counted number is known.

        Counted are those of owners that are counted themselves: where a copy has more owners, there are more.
        """
        target = self.plan.compile().table[table].key[key].target
        return self.sizes[table] * self._grown(table, self.expected_rows(1.0)[target], target)

    def _grown(self, table: str, owners: float, target: str) -> float:
        """How many times as many owners a copy has as were counted, at least 1. Rows from elsewhere stay as many."""
        counted = self.whole(target)
        given = isinstance(self.tables.get(table), ExternalTable)
        return 1.0 if given or counted <= 0 else min(max(owners / counted, 1.0), MOST_UNSEEN)

    def expected_rows(self, scale: float) -> dict[str, float]:
        """About how many rows each table of a woven database has, without weaving it."""
        rows = {name: float(table.num_rows) for name, table in self.public.items()}
        for name in self.plan.compile().order:
            rows[name] = max(self.whole(name) * scale, 0.0)
            owning = self.plan.promise.owning.get(name)
            if owning is None or self.plan.table[name].public_rows is not None:
                continue
            key = self.plan.compile().table[name].key[owning]
            if key.is_counted and self.only_total(name, owning) is not None:
                rows[name] *= self._grown(name, rows[key.target] / scale, key.target)
            if not key.is_counted or self.only_total(name, owning) is not None:
                continue
            drawn = self.pilot_degrees(name)
            owned = rows[key.target] * float(drawn.mean())
            rows[name] = min(owned, MOST_UNSEEN * max(rows[name], 1.0)) + rows[name] * (1 - self.share(name, owning))
        return rows
