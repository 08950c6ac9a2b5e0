"""Links drawn from what a release holds: no row is asked, nothing is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpweave.budget.tasks import cousins_task, link_task, order_task, siblings_task
from dpweave.links.link_method import Refittable
from dpweave.links.relation_model import relation_model
from dpweave.weaving.rows_in_order import OrderAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
            self.fits[at] = method.fit(problem, measured, rng=rng, degrees=degrees)
        unlinked.fit = self.fits[at]
        unlinked.pairs = method.draw(unlinked.fit, problem, rng=rng, degrees=degrees)
