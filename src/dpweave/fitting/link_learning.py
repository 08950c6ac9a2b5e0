"""Links: what is asked about each relation, in the order in which rows are woven."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.budget.tasks import COUSINS, ORDER, SIBLINGS, cousins_task, link_task, popularity_task, siblings_task
from dpweave.budget.ways_of_counting import for_units, relation_way
from dpweave.fitting.order_learning import OrderAsker
from dpweave.fitting.sibling_learning import learn_cousins, learn_siblings
from dpweave.fitting.unit_windows import unit_window
from dpweave.links.evidence import describe
from dpweave.links.map_learner import MAP
from dpweave.links.popularity import MOST_TARGETS, of_links, popularity, share_for
from dpweave.links.relation_model import relation_model
from dpweave.measure.answers import averaged
from dpweave.measure.question import Way
from dpweave.model.file_format import listed
from dpweave.privacy.accounting import subtract
from dpweave.schema.domain import parse_degree
from dpweave.weaving.known_links import KnownLinks, order_answers
from dpweave.weaving.parts import SharedRows, pilot
from dpweave.weaving.rows_in_order import OrderOf
from dpweave.weaving.state import WeavingState
from dpweave.weaving.weaver import Weaver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.budget.allocation import Allocation
    from dpweave.budget.tasks import Task
    from dpweave.links.degrees import Degrees
    from dpweave.links.link_method import LinkModel, LinkProblem
    from dpweave.plan.relations import Relation
    from dpweave.privacy.curator import Curator, CuratorWindow
    from dpweave.privacy.release import Release
    from dpweave.privacy.window import Columns, Noisy
    from dpweave.progress import Progress
    from dpweave.schema.database import ForeignKey
    from dpweave.schema.domain import Scalar
    from dpweave.weaving.blueprint import Blueprint
    from dpweave.weaving.link_problems import Unlinked


def ask_popularity(
    curator: Curator, blueprint: Blueprint, allocation: Allocation, report: Progress
) -> dict[str, float]:
    """Count how often each row of a public table is led to, where noise lets that show; return what links have left,
    by task.

    One row of each owner counts for a target, which noise need hide no more of (docs/proofs, Theorem 5).
    """
    plan = blueprint.plan
    compiled = plan.compile()
    left = {task.name: rho for task, rho in allocation.tasks.items() if task.group == "links"}
    for relation in compiled.relations:
        target, alone = relation.target, relation.is_popularity_alone
        task = popularity_task(relation) if alone else link_task(relation)
        if task.name not in left or not relation.has_popular_targets:
            continue
        if not isinstance(relation_model(compiled, relation), MAP) or blueprint.public[target].num_rows > MOST_TARGETS:
            continue
        with report.step(f"count links to each row of {target}"):
            keys = curator.set_targets(relation.table, relation.key)
            window = curator.window(relation.newcomer_view, name=popularity_task(relation).name) if keys else None
            order = _places(keys, blueprint.public[target], plan.database[relation.table].key[relation.key])
            if window is None or order is None:
                continue
            (column,) = window.shape
            mean = blueprint.sizes[relation.table] * blueprint.share(relation.table, relation.key) / len(keys)
            share = share_for(rho=left[task.name], l2=window.l2((column,)), mean=mean, targets=len(keys))
            rho = left[task.name] * (1.0 if alone else share)
            if rho > 0:
                window.measure([(column,)], rho=rho)
                left[task.name] = subtract(left[task.name], rho)
    return left


def with_popularity(blueprint: Blueprint, release: Release) -> Blueprint:
    """Say how often each row of a public table is led to, where a release has counts of it."""
    plan, found = blueprint.plan, {}
    for relation in plan.compile().relations:
        counted = [m for m in release.measured if m.what == popularity_task(relation).name]
        if not counted or not isinstance(relation_model(plan.compile(), relation), MAP):
            continue
        target, key = relation.target, plan.database[relation.table].key[relation.key]
        keys = [[str(v) for v in listed(m.domains[0])] for m in counted]
        order = _places(keys[0], blueprint.public[target], key)
        if order is not None and all(same == keys[0] for same in keys):
            noisy = averaged([m.marginal for m in counted])
            codes = WeavingState(plan, blueprint.public, seed=0).codes[target]
            counts = noisy.counts[order]
            weights = popularity(counts, sigma=noisy.sigma, columns=codes)
            found[relation.table, relation.key] = _by_links(blueprint, relation, weights, counts, noisy.sigma)
    return replace(blueprint, popularity=found)


def _by_links(
    blueprint: Blueprint, relation: Relation, weights: FloatArray, counts: IntArray, sigma: float
) -> FloatArray:
    """Weights of public rows by links, of which those that repeat an owner's pair were not counted."""
    table, plan = blueprint.plan.compile().table[relation.table], blueprint.plan
    own = plan.promise.owning.get(relation.table)
    if own is None or table.planned.table.is_unique(
        tuple(c for name in (own, relation.key) for c in table.key[name].planned.key.columns)
    ):
        return weights
    return of_links(
        weights,
        counts,
        sigma=sigma,
        owners=blueprint.sizes[table.key[own].target],
        degrees=np.minimum(blueprint.pilot_degrees(relation.table), plan.promise.bounds[relation.table, own]),
        share=blueprint.share(relation.table, relation.key),
    )


def _places(keys: Sequence[Scalar], table: pa.Table, key: ForeignKey) -> IntArray | None:
    """Which of ``keys`` each row of a public table has, as they print; None where they are not the same."""
    place = {str(value): i for i, value in enumerate(keys)}
    rows = [str(value) for value in table[key.target_columns[0]].to_pylist()] if keys else []
    return np.array([place[v] for v in rows]) if len(rows) == len(place) == len(place.keys() & set(rows)) else None


@dataclass(frozen=True)
class Asker:
    """Spends ``shares`` on links, by task, through a curator. ``longer`` are by how much units' vectors were longer."""

    curator: Curator
    blueprint: Blueprint
    shares: Mapping[str, float]
    siblings: Mapping[Task, float]
    """What of these is for what rows of one owner have in common."""
    longer: Mapping[str, Mapping[str, float]]

    def _in_units(self, window: CuratorWindow, relation: Relation) -> float:
        """What there is for rows of one owner as a whole, where it can be asked."""
        return self.siblings.get(link_task(relation), 0.0) if window.has_moments else 0.0

    def _for_units(self, window: CuratorWindow, relation: Relation) -> dict[str, float]:
        """What of it is for which question on these rows."""
        return for_units(self.blueprint.plan.compile(), relation, self._in_units(window, relation))

    def ask(self, unlinked: Unlinked, progress: Callable[[str, float], None]) -> None:
        """Ask about the links of a relation; what was answered is in the release."""
        relation, problem, degrees = unlinked.relation, unlinked.problem, unlinked.degrees
        window = _links_window(self.curator, self.blueprint, relation, self.longer)
        rho = subtract(self.shares[link_task(relation).name], self._in_units(window, relation))
        model = _for_hidden(relation_model(self.blueprint.plan.compile(), relation), relation, problem, degrees)
        if isinstance(model, MAP):
            model.ask(window, problem, rho=rho, progress=progress, degrees=degrees)
        else:  # links are drawn from what it asked, by a generator that it has not used
            model.learn(window, problem, rho=rho, rng=deepcopy(unlinked.rng), progress=progress, degrees=degrees)

    def ask_for_siblings(self, unlinked: Unlinked) -> None:
        """Ask what rows of one owner have in common, once it is known which rows go with which owners, and then what
        those of one unit have.
        """
        relation = unlinked.relation
        window = _links_window(self.curator, self.blueprint, relation, self.longer)
        shares = self._for_units(window, relation)
        if unlinked.pairs is None:
            return
        problem, pairs, above = unlinked.problem, unlinked.pairs, unlinked.above
        if rho := shares[SIBLINGS]:
            named = replace(window, name=siblings_task(relation).name)
            learn_siblings(named, relation, problem, pairs, above, rho=rho)
        if rho := shares.get(COUSINS, 0.0):
            named, promise = replace(window, name=cousins_task(relation).name), self.blueprint.plan.promise
            root = promise.root(relation.table)
            most = promise.owned_rows(root, relation.table)
            learn_cousins(named, relation, problem, pairs, above, root, most_rows=most, rho=rho)

    def ask_for_order(self, unlinked: Unlinked) -> None:
        """Ask in what order rows of one owner come."""
        window = _links_window(self.curator, self.blueprint, unlinked.relation, self.longer)
        order = OrderOf.of(self.blueprint.plan, unlinked.relation)
        rho = self._for_units(window, unlinked.relation).get(ORDER, 0.0)
        if order is not None and rho and unlinked.pairs is not None:
            OrderAsker(self.curator, self.blueprint).ask(unlinked, order, rho=rho)


def learn_links(
    release: Release, blueprint: Blueprint, report: Progress, *, asker: Asker | None = None
) -> tuple[list[dict[str, object]], dict[tuple[str, str], Any]]:
    """Learn each relation when its turn comes in the weaving of a first database, or of a part of one, from what the
    ``release`` holds once the ``asker`` has asked about it; the rows do not stay.

    Returns what the noisy counts say about each relation, and what was fitted to them.
    """
    plan = blueprint.plan
    found: dict[str, dict[str, object]] = {}
    part, common = pilot(plan, blueprint.expected_rows(1.0))
    weaver = Weaver(blueprint, scale=1.0, seed=0, part=part, shared_rows=SharedRows(common), compose=False)
    names = {link_task(r).name for r in plan.compile().relations}
    known = {m.what for m in release.measured} | {m.what for m in release.summed_by_unit}
    known &= names
    asked = set() if asker is None else set(asker.shares)
    links = KnownLinks(plan.compile(), release, {})
    for unlinked in weaver.wire() if known | asked else ():
        relation, name = unlinked.relation, link_task(unlinked.relation).name
        at = f"{relation.table}.{relation.key}"
        if name not in known | asked:
            continue
        with report.step(f"learn links {at}"):
            if asker is not None and name in asked:
                asker.ask(unlinked, report.inside)
            links.link(unlinked)
            if asker is not None and name in asked:
                asker.ask_for_siblings(unlinked)
                unlinked.siblings = release.find_moments(siblings_task(relation).name)
                unlinked.cousins = release.find_moments(cousins_task(relation).name)
                asker.ask_for_order(unlinked)
                unlinked.order = order_answers(release, relation)
        measured: tuple[Noisy, ...] = (*release.find(name), *release.find_unit_sums(name))
        said = describe(unlinked.problem, measured, degrees=unlinked.degrees, rng=unlinked.rng)
        found[at] = {"relation": at, **said}
    for at, shared in weaver.siblings.items():
        for level, one in zip(("siblings", "cousins"), shared, strict=False):
            found[at][level] = {"factors": one.factors, "strongest": round(one.strongest, 3)}
    for at, order in weaver.orders.items():
        found[at]["order"] = {"factors": order.factors, "strongest": round(order.strongest, 3)}
    left = [r for r in plan.compile().relations if f"{r.table}.{r.key}" not in found]
    return [*found.values(), *(_unlearned(r) for r in left)], weaver.fits


def _links_window(
    curator: Curator, blueprint: Blueprint, relation: Relation, longer: Mapping[str, Mapping[str, float]]
) -> CuratorWindow:
    """Open the window on the links of a relation. Unit sums know how much ``longer`` than expected vectors were."""
    unit_sums = relation_way(blueprint.plan.compile(), relation) is not Way.PLAIN
    window = unit_window(curator, relation.view, link_task(relation).name, blueprint.sizes, unit_sums=unit_sums)
    if window.units is None:
        return window
    known = longer.get(relation.table, {})
    own = {n: known[a.column] for n, a in relation.left if not a.path and a.column in known}
    return replace(window, units=replace(window.units, longer=own))


def _for_hidden(model: LinkModel, relation: Relation, problem: LinkProblem, degrees: Degrees) -> LinkModel:
    """Favour how columns of owned rows go with their owner's degree, by the share of rows that bounds hide.

    What hidden rows are like is told by nothing else (:func:`dpweave.links.draw_links.renewed_rows`).
    """
    if not (isinstance(model, MAP) and problem.left_may_repeat) or degrees.right is None or degrees.right_seen is None:
        return model
    hidden = 1 - float((degrees.right * degrees.right_seen).sum()) / max(float(degrees.right.sum()), 1.0)
    counted = [n for n, a in relation.right if parse_degree(a.column) == (relation.table, relation.key)]
    pairs: dict[Columns, float] = {(n, c): hidden / len(relation.left) for n, _ in relation.left for c in counted}
    return replace(model, favoured={**pairs, **model.favoured}) if hidden > 0 else model


def _unlearned(relation: Relation) -> dict[str, object]:
    """Say of a relation that nothing was asked about its links, and why."""
    if relation.method == "random":
        why = "the plan asks for that"
    elif relation.is_dictated:
        why = "another key shares its columns"
    elif not relation.learnable:
        why = "one of its sides has no column to correlate"
    else:
        why = "the noisy sizes leave no rows to link, or its tables nothing to ask for"
    verdict = f"links are wired at random within the degrees, because {why}; nothing was measured about them"
    return {"relation": f"{relation.table}.{relation.key}", "verdict": verdict, "components": []}
