"""The link model of one relation of a plan, set to what its columns allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.budget.tasks import favoured, link_task
from dpweave.budget.ways_of_counting import relation_way
from dpweave.links.link_method import LinkModel, link_model
from dpweave.measure.cross_workloads import cross_workloads

if TYPE_CHECKING:
    from dpweave.plan.compiled import CompiledPlan
    from dpweave.plan.relations import Relation


def relation_model(plan: CompiledPlan, relation: Relation) -> LinkModel:
    """Return the link model of a relation, set to what its columns allow."""
    method = relation.method
    k = min(plan.k, len(relation.left) + len(relation.right))
    if method != "pgd":
        favour, way = favoured(plan, link_task(relation)), relation_way(plan, relation)
        return link_model(method) if method == "random" else link_model(method, k=k, favoured=favour, way=way)
    every = len(cross_workloads([n for n, _ in relation.left], [n for n, _ in relation.right], k=k))
    choices = min(3, every)
    return link_model(method, k=k, K=choices, T=max(1, min(15, every // choices)))
