"""Links drawn from what a release holds: no row is asked, nothing is spent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.budget.tasks import cousins_task, link_task, order_task, siblings_task
from dpweave.links.link_fit import LinkFit
from dpweave.links.link_method import Refittable
from dpweave.links.relation_model import relation_model
from dpweave.measure.cross_workloads import Workload
from dpweave.schema.domain import Attribute
from dpweave.weaving.rows_in_order import OrderAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpweave.arrays import FloatArray
    from dpweave.plan.compiled import CompiledPlan
    from dpweave.plan.relations import Relation
    from dpweave.privacy.release import Release
    from dpweave.privacy.window import Noisy
    from dpweave.weaving.link_problems import Unlinked


def order_answers(release: Release, relation: Relation) -> OrderAnswers:
    """What a release says about the order of rows of one owner."""
    name = order_task(relation).name
    return OrderAnswers((*release.find(name), *release.find_unit_sums(name)), release.find_moments(name))


class KnownLinks:
    """Draws links from fits. What is not fitted yet is fitted to the release, once for all parts of a database."""

    def __init__(
        self,
        plan: CompiledPlan,
        release: Release,
        fits: Mapping[tuple[str, str], Any],
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        self._plan = plan
        self._release = release
        self._progress = progress
        self.fits = dict(fits)
        """What was fitted, by (table, key)."""

    def link(self, unlinked: Unlinked) -> None:
        """Give a relation its links; none where nothing was measured."""
        relation, problem, degrees, rng = unlinked.relation, unlinked.problem, unlinked.degrees, unlinked.rng
        if self._progress is not None:
            every = self._plan.relations
            self._progress(f"{relation.table}.{relation.key}", every.index(relation) / len(every))
        name = link_task(relation).name
        unlinked.siblings = self._release.find_moments(siblings_task(relation).name)
        unlinked.cousins = self._release.find_moments(cousins_task(relation).name)
        unlinked.order = order_answers(self._release, relation)
        measured: tuple[Noisy, ...] = (*self._release.find(name), *self._release.find_unit_sums(name))
        if not measured:
            return
        method, at = relation_model(self._plan, relation), (relation.table, relation.key)
        if not isinstance(method, Refittable):
            unlinked.pairs = method.wire(problem, measured, rng=rng, degrees=degrees)
            return
        if at not in self.fits:
            problem = replace(problem, expected=_within_units(self._plan, relation, self.fits, problem.shape))
            self.fits[at] = method.fit(problem, measured, rng=rng, degrees=degrees)
        unlinked.fit = self.fits[at]
        unlinked.pairs = method.draw(unlinked.fit, problem, rng=rng, degrees=degrees)


def _within_units(
    plan: CompiledPlan, relation: Relation, fits: Mapping[tuple[str, str], Any], shape: Mapping[str, int]
) -> dict[Workload, FloatArray]:
    """What is known of two rows of one unit before it is known which lead to each other: how the target's columns go
    with those of the unit, which are columns of the other row, too.
    """
    promise, target = plan.promise, relation.target
    own, theirs = promise.owning.get(relation.table, ""), promise.owning.get(target, "")
    fit, owned = fits.get((target, theirs)), plan.relation.get((target, theirs))
    if relation.joint is not None or not promise.is_within(relation.table, relation.key) or owned is None:
        return {}
    if not isinstance(fit, LinkFit) or plan.table[relation.table].key[own].target != owned.target:
        return {}
    left, right = ({a: n for n, a in side} for side in (relation.left, relation.right))
    name = {n: right.get(Attribute(a.column, (relation.key, *a.path))) for n, a in owned.left}
    name |= {n: left.get(Attribute(a.column, (own, *a.path[1:]))) for n, a in owned.right}
    out = {}
    for w, table in fit.theta.items():
        units, ours = ([name[c] for c in side] for side in (w.right, w.left))
        if None not in (*units, *ours):
            seen = Workload(tuple(map(str, units)), tuple(map(str, ours)))
            turned = np.transpose(table, [w.columns.index(c) for c in (*w.right, *w.left)])
            more = [(0, shape[c] - n) for c, n in zip(seen.columns, turned.shape, strict=True)]
            out[seen] = np.pad(turned, more)  # a row that leads nowhere goes with everything
    return out
