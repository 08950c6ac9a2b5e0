"""The Curator: private rows, a ledger, and two verbs. Nothing else crosses the wall."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import PlanError, UsageError, nearest
from dpweave.privacy import selection
from dpweave.privacy.accounting import (
    Cost,
    gaussian_rho,
    gaussian_sigma,
    round_up,
    selection_rho,
    selection_scale,
    split,
)
from dpweave.privacy.bounding import Bounding
from dpweave.privacy.counts import Counts
from dpweave.privacy.noise import SecureNoise, require_scale, threshold_for
from dpweave.privacy.release import (
    Answer,
    Discovered,
    Measured,
    MeasuredMoments,
    MeasuredUnitSum,
    Question,
    Release,
    Selected,
)
from dpweave.privacy.sensitivity import movement, siblings_at_most, units_of, weighed
from dpweave.privacy.unit_sums import CLIP, LENGTH, checked, grid, on_grid, plain, plain_moments, require_moments
from dpweave.privacy.window import (
    Candidate,
    Columns,
    NoisyMarginal,
    NoisyMoments,
    NoisyUnitSum,
    UnitMoments,
    Units,
    UnitSum,
)
from dpweave.schema.codec import Codec
from dpweave.schema.domain import MAX_CELLS, Categories, View, newcomer, parse_newcomer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.engines.source_base import Source
    from dpweave.privacy.ledger import Ledger
    from dpweave.privacy.noise import NoiseSource
    from dpweave.privacy.promise import Promise
    from dpweave.privacy.release import Answers
    from dpweave.privacy.window import Among
    from dpweave.schema.domain import Scalar


class Curator:
    """Rows behind the wall.

    Formal guarantees:
      - ``measure``, ``select`` and ``discover`` charge the ledger, wait until the charge is durable, and read then.
      - What they return, and every error they raise, depends on rows only through noise that was charged for.
      - Everything they return is recorded in :attr:`release`, and in ``kept`` before it is returned.
    """

    def __init__(
        self,
        source: Source,
        promise: Promise,
        *,
        ledger: Ledger,
        noise: NoiseSource | None = None,
        salt: str | None = None,
        kept: Answers | None = None,
    ) -> None:
        self.promise = promise
        self.release = Release()
        self._ledger = ledger
        self._noise = SecureNoise() if noise is None else noise
        self._kept = kept
        self._bounding = Bounding(source, promise, salt=salt)
        self._counts = Counts(self._bounding)
        self._movement = lru_cache(maxsize=None)(partial(movement, promise))

    @property
    def insecure(self) -> bool:
        """Whether noise comes from a known seed, for tests."""
        return self._noise.insecure

    @property
    def counts_in_memory(self) -> bool:
        """Whether codes of rows can be fetched, so that units are looked at in this process."""
        return self._bounding.source.hands_out_codes

    @property
    def spent(self) -> Cost:
        """What this run has been charged."""
        return self._ledger.spent

    def check(self, *, require_targets: bool = False) -> None:
        """Refuse data that break what the promise takes for granted (see :meth:`Bounding.check`)."""
        self._bounding.check(require_targets=require_targets)

    def set_codec(self, table: str, column: str, codec: Codec) -> None:
        """Declare a column's codes: public, from the plan or from what was learned. Replaces an earlier declaration."""
        self._refuse_key(table, column)
        if parse_newcomer(column):
            raise UsageError(f"codes of {column!r} are rows of a public table; set_targets declares them")
        self._counts.set_codec(table, column, codec)

    def set_targets(self, table: str, key: str) -> tuple[Scalar, ...]:
        """Let ``table`` be counted by the public row that ``key`` leads to. Returns
        these rows' keys, in the order of codes.

        Nothing is set, and nothing returned, where they have no single key of their own. Reads public rows only.
        """
        led = self.promise.database[table].key[key]
        if self.promise.is_private(led):
            raise UsageError(f"{table}.{key} leads to private rows, which are never counted one by one")
        settled = self._bounding.source.can_materialise  # else rows are numbered anew in every query
        keys = self._counts.public_keys(led) if settled and len(led.columns) == 1 else ()
        if keys:
            column = replace(self.promise.database[led.target].column[led.target_columns[0]], nullable=False)
            self._counts.set_codec(table, newcomer(key), Codec(column, Categories(keys)))
        return keys

    def window(self, view: View, *, name: str, unit_sums: bool = False) -> CuratorWindow:
        """Open a window on one view, for a client; ``unit_sums`` lets it measure these too, where they may be."""
        shape = {}
        for column, attribute in view.columns:
            table = self.promise.graph.walk(view.base, attribute.path)
            if not self._counts.has_codec(table, attribute.column):
                raise UsageError(f"the view {name!r} asks for {table}.{attribute.column}, which has no domain yet")
            shape[column] = self._counts.codec(view, column).size
        return CuratorWindow(self, view, name, shape, self.units(view) if unit_sums else None)

    # -- sensitivity -----------------------------------------------------------------------------------------------

    def l1(self, view: View, columns: Columns) -> dict[str, float]:
        """L1 sensitivity of a marginal, per protected table."""
        return {t: self._movement(view, columns, t).l1 for t in self.promise.protected}

    def l2(self, view: View, columns: Columns) -> dict[str, float]:
        """L2 sensitivity of a marginal, per protected table."""
        return {t: self._movement(view, columns, t).l2 for t in self.promise.protected}

    # -- the verbs -------------------------------------------------------------------------------------------------

    def _ask(self, question: Question, cost: Cost, read: Callable[[], Answer]) -> Answer:
        """Answer a question as it was answered before, or else from rows.

        Formal guarantees:
          - What is kept was charged for when it was made, and has its noise: giving it again is post-processing.
          - Otherwise the charge is on disk before ``read`` is called, and its answer is kept before it is returned.
        """
        answer = None if self._kept is None else self._kept.recall(question)
        if answer is None:
            self._ledger.charge(cost, what=question.what)
            answer = read()
            if self._kept is not None:
                self._kept.keep(question, answer)
        return answer

    def measure(
        self, view: View, cliques: Sequence[Columns], *, what: str, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        r"""Noisy counts over each clique of ``view``.

        Formal guarantees:
          - Sensitivity: one unit of table t moves marginal i by at most :math:`\Delta_{t,i}` in L2 (PRIVACY §4).
          - Cost: clique i has the share :math:`\rho_i` of ``rho`` and noise :math:`\sigma_i = \max_t
            \Delta_{t,i} / \sqrt{2\rho_i}`; table t pays :math:`\Delta_{t,i}^2 / (2\sigma_i^2)`.
          - Charged before rows are read; errors depend on the arguments alone.
        """
        if not cliques:
            return ()
        for clique in cliques:
            self._require_clique(view, clique)
        shares = split(rho, [1.0] * len(cliques) if weights is None else list(weights))
        cost, sigmas = Cost.zero(), []
        for clique, share in zip(cliques, shares, strict=True):
            l2 = self.l2(view, clique)
            worst = max(l2.values())
            if worst == 0:
                raise UsageError(f"{what!r} counts public rows only; read them directly")
            sigma = require_scale("sigma", gaussian_sigma(worst, share))
            cost += Cost({t: share if x == worst else gaussian_rho(x, sigma) for t, x in l2.items() if x > 0}, {})
            sigmas.append(sigma)
        asked = {"verb": "measure", "what": what, "cliques": [list(c) for c in cliques], "sigma": sigmas}
        domains = tuple(tuple(self._counts.codec(view, c).domain for c in clique) for clique in cliques)

        def read() -> Answer:
            exact = self._counts.marginals(view, cliques)  # private from here ...
            pairs = zip(exact, sigmas, strict=True)
            return Answer(tuple(self._noise.discrete_gaussian(x, sigma=s) for x, s in pairs))  # ... to here

        counts = self._ask(Question(asked, view, domains), cost, read).counts
        noisy = tuple(NoisyMarginal(*of) for of in zip(cliques, counts, sigmas, strict=True))
        for m, domain in zip(noisy, domains, strict=True):
            self.release.measured.append(Measured(what, view, domain, m))
        return noisy

    def units(self, view: View) -> Units | None:
        """What is public about one unit's rows in ``view``, where unit sums may be measured; None elsewhere."""
        return units_of(self.promise, view) if self._bounding.source.sums_units or self.counts_in_memory else None

    def measure_unit_sums(
        self, view: View, unit_sums: Sequence[UnitSum], *, what: str, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyUnitSum, ...]:
        r"""Noisy clipped sums of each unit sum over ``view``.

        Formal guarantees:
          - Sensitivity: one unit moves unit sum i by at most the length :math:`L` in L2 (Theorem 6).
          - Cost: unit sum i has the share :math:`\rho_i` of ``rho`` and noise :math:`\sigma_i = L / \sqrt{2\rho_i}`,
            paid by the protected table whose units own the rows; others own none of them and pay nothing.
          - Charged before rows are read; errors depend on the arguments alone.
        """
        if not unit_sums:
            return ()
        rho, units = _number(rho), self.units(view)
        unit_sums = unit_sums if units is None else [self._require_unit_sum(view, unit_sum) for unit_sum in unit_sums]
        if units is None or not all(units.hold(unit_sum.all_columns) for unit_sum in unit_sums):
            raise UsageError(
                f"{what!r}: unit sums are counted for rows that belong to units and that no other unit moves"
            )
        shares = split(rho, [1.0] * len(unit_sums) if weights is None else list(weights))
        sigmas = [require_scale("sigma", gaussian_sigma(float(LENGTH), share)) for share in shares]
        shown = [s / LENGTH * unit_sum.clip for s, unit_sum in zip(sigmas, unit_sums, strict=True)]
        asked = {
            "verb": "measure",
            "what": what,
            "cliques": [list(b.columns) for b in unit_sums],
            "codes": [len(b.codes) for b in unit_sums],
            "clip": [b.clip for b in unit_sums],
            "centred": [b.centred for b in unit_sums],
            "sigma": shown,
        }

        def read() -> Answer:
            exact = [self._counts.unit_sum(view, unit_sum) for unit_sum in unit_sums]  # private from here ...
            pairs = zip(exact, sigmas, strict=True)
            return Answer(tuple(self._noise.discrete_gaussian(x, sigma=s) for x, s in pairs))  # ... to here

        cost = Cost({self.promise.root(view.base): rho}, {})
        whole = self._ask(Question(asked, view, tuple(unit_sums)), cost, read).counts
        noisy = tuple(
            NoisyUnitSum(unit_sum, x / on_grid(unit_sum)[0] * (CLIP / LENGTH), sigma)
            for unit_sum, x, sigma in zip(unit_sums, whole, shown, strict=True)
        )
        self.release.summed_by_unit += [MeasuredUnitSum(what, view, unit_sum) for unit_sum in noisy]
        return noisy

    def measure_moments(self, view: View, moments: UnitMoments, *, what: str, rho: float) -> NoisyMoments:
        r"""Noisy second moments of each unit's rows over ``view``.

        Formal guarantees:
          - Sensitivity: one unit moves them by at most its length L on the grid in L2, as their sum is one of vectors
            that depend on one unit each, whichever of its tables they look at (Theorem 6).
          - Cost: ``rho``, with noise :math:`\sigma = L / \sqrt{2\rho}`, paid by the protected table whose units own
            the rows.
          - Charged before rows are read; errors depend on the arguments alone.
        """
        rho, moments = _number(rho), plain_moments(moments)
        most_rows = siblings_at_most(self.promise, view, moments)
        if not most_rows or not self.counts_in_memory:
            raise UsageError(
                f"{what!r}: moments are counted in memory, for rows that one owner may have and no other unit moves"
            )
        require_moments(
            moments,
            {name: self._counts.codec(one, name).size for one in moments.views(view) for name in one.attribute},
        )
        step, most = grid(moments.clip)
        sigma = require_scale("sigma", gaussian_sigma(float(most), rho))
        asked = {
            "verb": "measure",
            "what": what,
            "moments": list(moments.all_columns),
            "numbers": len(moments.at[0]),
            "clip": moments.clip,
            "sigma": sigma / step,
        }

        def read() -> Answer:
            exact = self._counts.unit_moments(view, moments, most_rows=most_rows)  # private from here ...
            return Answer((self._noise.discrete_gaussian(exact, sigma=sigma),))  # ... to here

        (whole,) = self._ask(
            Question(asked, view, (moments,)), Cost({self.promise.root(view.base): rho}, {}), read
        ).counts
        _, _, together = moments.at
        scales = np.where(np.arange(len(whole)) < together, moments.scale, 1.0)
        noisy = NoisyMoments(moments, whole / step * scales, sigma / step)
        self.release.moments.append(MeasuredMoments(what, view, noisy))
        return noisy

    def _require_unit_sum(self, view: View, unit_sum: UnitSum) -> UnitSum:
        unit_sum = plain(unit_sum)
        self._require_clique(view, unit_sum.columns, times=len(unit_sum.codes))
        for code in unit_sum.codes:
            self._require_clique(view, tuple(c for c, _ in code))
        return checked(unit_sum, {name: self._counts.codec(view, name).size for name in view.attribute})

    def select(
        self,
        view: View,
        candidates: Sequence[Candidate],
        *,
        what: str,
        rho: float,
        count: int = 1,
        among: Among | None = None,
    ) -> tuple[int, ...]:
        r"""Positions of ``count`` distinct candidates, drawn by exact noisy max one after the other.

        Each is drawn from those that ``among`` says, given the ones before it; without it, from all.

        Formal guarantees:
          - Sensitivity: a score moves by at most weight times the L1 sensitivity of its marginal, up or down.
          - Cost: :math:`\varepsilon^2/8` for each of ``count`` choices, ``rho`` in all for the worst table.
          - Charged before rows are read; errors depend on the arguments alone.
        """
        for candidate in candidates:
            self._require_clique(view, candidate.columns)
        shapes = [tuple(self._counts.codec(view, c).size for c in x.columns) for x in candidates]
        selection.check_candidates(candidates, shapes)
        if not 1 <= count <= len(candidates):
            raise UsageError(
                f"{count} of {len(candidates)} candidates cannot be selected; ask for between 1 and {len(candidates)}"
            )
        rho = _number(rho)
        each = split(rho, [1.0] * count)[0]
        by_table = {
            t: selection.sensitivity(candidates, [self.l1(view, c.columns)[t] for c in candidates])
            for t in self.promise.protected
        }
        worst = max(by_table.values())
        scale = require_scale("scale", selection_scale(worst, each)) if worst else 0.0
        pay = {
            t: rho if x == worst else round_up(count * Fraction(selection_rho(x, scale)))
            for t, x in by_table.items()
            if x > 0
        }
        asked = {"verb": "select", "what": what, "candidates": len(candidates), "count": count, "scale": scale}

        def read() -> Answer:
            counts = self._counts.marginals(view, [c.columns for c in candidates])  # private from here ...
            scores = [selection.score(x, c) for x, c in zip(counts, candidates, strict=True)]
            drawn = selection.select(scores, count=count, scale=scale, noise=self._noise, among=among)  # ... to here
            return Answer((np.array(drawn, dtype=np.int64),))

        (drawn,) = self._ask(Question(asked, view, tuple(candidates)), Cost(pay, {}), read).counts
        chosen = tuple(drawn.tolist())
        columns, weights = tuple(c.columns for c in candidates), tuple(float(c.weight) for c in candidates)
        self.release.selected.append(Selected(what, view, columns, chosen, weights, scale))
        return chosen

    def discover(self, table: str, column: str, *, what: str, rho: float, delta: float) -> Mapping[str, float]:
        r"""Measure a marginal whose cells are not known: noisy counts of the categories that pass a threshold.

        Where rows of one unit may be many and no other unit moves them, units are counted and not rows: one that has
        k categories counts :math:`1/\sqrt k` for each of them.

        Formal guarantees:
          - Sensitivity: one unit of table t moves the weights by at most :math:`\Delta_t` in L2, and brings at most
            so many categories of its own, each of at most such a weight, as :func:`weighed` says (Theorem 9).
          - Cost: :math:`\Delta_t^2/(2\sigma^2)` of zCDP, and δ for the event that a category which only one unit has
            passes the threshold. A table's share of δ is charged in full.
          - Charged before rows are read; errors depend on the arguments alone.
        """
        self._refuse_key(table, column)
        if column not in self.promise.database[table].column:
            raise UsageError(f"table {table!r} has no column {column!r}, so it has no categories")
        rho, delta, of = _number(rho), _number(delta), weighed(self.promise, table)
        worst = max(of.l2.values())
        if worst == 0:
            raise UsageError(f"{table!r} is public; read its categories directly")
        sigma = gaussian_sigma(worst, rho)
        threshold = max(threshold_for(delta, sigma, l0=categories, linf=weight) for categories, weight in of.alone)
        pay = {t: rho if l2 == worst else gaussian_rho(l2, sigma) for t, l2 in of.l2.items() if l2}
        asked = {
            "verb": "discover",
            "what": what,
            "column": f"{table}.{column}",
            "counted": "units" if of.by_unit else "rows",
            "sigma": sigma / of.length,
            "threshold": threshold / of.length,
        }

        def read() -> Answer:
            weights = self._counts.categories(table, column, length=of.length)  # private from here ...
            passed = self._noise.threshold_counts(weights, sigma=sigma, threshold=threshold)  # ... to here
            return Answer((np.array([*passed.values()], dtype=np.int64),), tuple(passed))

        answer = self._ask(Question(asked, None, ()), Cost(pay, dict.fromkeys(pay, delta)), read)
        found = {v: weight / of.length for v, weight in zip(answer.values, answer.counts[0].tolist(), strict=True)}
        self.release.discovered.append(
            Discovered(what, table, column, found, sigma / of.length, threshold / of.length, of.by_unit)
        )
        return found

    def _refuse_key(self, table: str, column: str) -> None:
        """Values of a key to private rows are counted by where they lead and never as such: no bound holds for them."""
        for key in self.promise.database[table].foreign_keys:
            if column in key.columns and self.promise.is_private(key) and table not in self.promise.public:
                raise PlanError(
                    f"column {column!r} of {table!r} belongs to the foreign key {key.name!r} to the private table "
                    f"{key.target!r}, so its values cannot be counted; its domain is 'key'"
                )

    def _require_clique(self, view: View, clique: Columns, *, times: int = 1) -> None:
        cells = times
        for name in clique:
            if name not in view.attribute:
                raise UsageError(f"the view of {view.base!r} has no column {name!r}: {nearest(name, view.attribute)}")
            cells *= self._counts.codec(view, name).size
        if len(set(clique)) != len(clique):
            raise UsageError(f"the clique {', '.join(clique)} names a column twice")
        if cells > MAX_CELLS:
            raise UsageError(
                f"the marginal over {', '.join(clique)} has {cells:,} cells, more than {MAX_CELLS:,}; use coarser"
                " domains"
            )


def _number(given: float) -> float:
    """One plain number for the noise and for the charge, whatever a class makes of it; no number stays what it is."""
    return float(given) if isinstance(given, float | int) else given


@dataclass(frozen=True)
class CuratorWindow:
    """A :class:`~dpweave.privacy.window.Window` on one view of a Curator."""

    _curator: Curator
    view: View
    name: str
    shape: Mapping[str, int]
    units: Units | None = None

    def l1(self, columns: Columns) -> float:
        """L1 sensitivity, the largest over protected tables."""
        return max(self._curator.l1(self.view, columns).values())

    def l2(self, columns: Columns) -> float:
        """L2 sensitivity, the largest over protected tables."""
        return max(self._curator.l2(self.view, columns).values())

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        """See :meth:`Curator.measure`."""
        return self._curator.measure(self.view, cliques, what=self.name, rho=rho, weights=weights)

    def measure_unit_sums(
        self, unit_sums: Sequence[UnitSum], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyUnitSum, ...]:
        """See :meth:`Curator.measure_unit_sums`."""
        return self._curator.measure_unit_sums(self.view, unit_sums, what=self.name, rho=rho, weights=weights)

    @property
    def has_moments(self) -> bool:
        """Whether moments can be measured: rows are counted in memory, and other units move none of them."""
        return self.units is not None and self._curator.counts_in_memory

    def bound(self, key: str) -> int:
        """How many rows of the base are counted per row that ``key`` leads to."""
        return self._curator.promise.bounds[self.view.base, key]

    def measure_moments(self, moments: UnitMoments, *, rho: float) -> NoisyMoments:
        """See :meth:`Curator.measure_moments`."""
        return self._curator.measure_moments(self.view, moments, what=self.name, rho=rho)

    def select(
        self, candidates: Sequence[Candidate], *, rho: float, count: int = 1, among: Among | None = None
    ) -> tuple[int, ...]:
        """See :meth:`Curator.select`."""
        return self._curator.select(self.view, candidates, what=self.name, rho=rho, count=count, among=among)
