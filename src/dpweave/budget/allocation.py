r"""How one budget is shared over everything a fit has to ask (PRIVACY §5).

A protected table t has :math:`\rho_t` to spend: ρ less what the makers of tables made elsewhere declare for it. A task
i has a weight :math:`w_i` and touches some protected tables. With :math:`W_t = \sum_{i \ni t} w_i`, it gets
:math:`\rho_i = w_i \min_{t \in i} \rho_t / W_t`. Then no column of the ledger passes its :math:`\rho_t`, whatever the
weights: :math:`\sum_{i \ni t} \rho_i \le \sum_{i \ni t} w_i \rho_t / W_t = \rho_t`. Tasks that touch different tables
do not compete.

Weights: the plan's shares divide the budget between learned domains, sizes, tables and links. Sizes share theirs
evenly; the others by what each is worth (:mod:`dpweave.budget.priorities`), worked out for every protected table among
the tasks that touch it. A column whose values were not found is worth nothing to tables and links: where the plan
says nothing of domains, and a tenth would not make learned ones useful, the three share one pot by worth, as far as
domains need it. A task that touches several protected tables takes the smallest of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpweave import chosen
from dpweave.budget.priorities import (
    Priority,
    domain_priority,
    popularity_priority,
    relation_priority,
    shares,
    table_priority,
)
from dpweave.budget.tasks import Task, favoured, is_category, serving, tasks, touched
from dpweave.budget.ways_of_counting import asks_for_siblings, task_way
from dpweave.errors import BudgetError, PlanError, UsageError
from dpweave.plan.rule_checks import require_possible
from dpweave.privacy.accounting import (
    Cost,
    epsilon_of_rho,
    require_number,
    rho_of_epsilon,
    round_down,
    round_up,
    subtract,
)
from dpweave.privacy.sensitivity import movement
from dpweave.schema.domain import View, parse_degree, parse_newcomer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.plan.compiled import CompiledPlan
    from dpweave.plan.entries import Shares
    from dpweave.plan.plan import Plan

    Part = tuple[float, float]
    """What a task gets of a protected table's budget, and what of it is for what rows of one owner have in common."""


@dataclass(frozen=True)
class Allocation:
    """What each task may spend, and the limits they were cut from."""

    rho: float
    delta: float
    spent_delta: float
    """The part of delta for learned categories and for tables made elsewhere; the rest converts rho."""
    tasks: Mapping[Task, float]
    category_delta: float
    """Delta for each learned list of categories."""
    siblings: Mapping[Task, float] = field(default_factory=dict)
    """What of a relation's share is for what rows of one owner have in common."""

    def for_links(self, task: Task) -> float:
        """What is left of a relation's share for which rows go with which owners."""
        return subtract(self.tasks[task], self.siblings.get(task, 0.0))


def _require_served(plan: CompiledPlan) -> None:
    """Refuse workloads that nothing would measure."""
    for workload, task in serving(plan):
        if task is None:
            raise PlanError(
                f"{workload.declared} is seen from {workload.base!r}, but no table that is fitted here and no learned "
                "relation holds all of it; let its foreign keys be learned (method), or drop it"
            )


def allocate(plan: Plan, *, epsilon: float, delta: float) -> Allocation:
    """Share (epsilon, delta) over the tasks of ``plan``; depends on public facts alone."""
    require_number("epsilon", epsilon, low=0)
    require_number("delta", delta, low=0, high=1)
    require_possible(plan)
    compiled = plan.compile()
    _require_served(compiled)
    todo = tasks(compiled)
    tables_of = {task: touched(compiled, task) for task in todo}
    categories = [t for t in todo if is_category(compiled, t)]
    elsewhere = sum(declared_costs(plan).values(), Cost.zero())
    used = max(elsewhere.delta.values(), default=0.0)
    for_categories = subtract(delta, used) * plan.shares.delta_domains if categories else 0.0
    spent_delta = round_up(Fraction(used) + Fraction(for_categories))
    if not subtract(delta, spent_delta) > 0:
        raise BudgetError(
            f"tables made elsewhere declare a delta of {used:g}, all of the {delta:g} asked for; ask for more"
        )
    rho = rho_of_epsilon(epsilon, delta=subtract(delta, spent_delta))
    left = {t: Fraction(rho) - elsewhere.exact[0].get(t, 0) for t in plan.promise.protected}
    _require_left(left, elsewhere, epsilon=epsilon, delta=subtract(delta, spent_delta))
    weights, parts = _divided(compiled, plan.shares, todo, tables_of, rho)
    given = _filled(weights, tables_of, left)
    if any(not share > 0 for share in given.values()):
        raise UsageError(f"epsilon {epsilon:g} is too small to be shared over {len(todo)} tasks")
    most = max((sum(t in tables_of[i] for i in categories) for t in plan.promise.protected), default=0)
    each = round_down(Fraction(for_categories) / most) if most else 0.0
    return Allocation(rho, delta, spent_delta, given, each, _siblings(compiled, given, parts))


def _filled(
    weights: Mapping[Task, Fraction], tables_of: Mapping[Task, tuple[str, ...]], left: Mapping[str, Fraction]
) -> dict[Task, float]:
    """Give every task as much per weight as the scarcest table it touches allows: the
    scarcest first, then what others have left.

    No table passes what it has ``left``, and one that shares no task with a scarcer table spends it all.
    """
    rest, open_ = dict(left), set(weights)
    given: dict[Task, float] = {}
    while open_:
        load = {t: sum((weights[i] for i in open_ if t in tables_of[i]), Fraction()) for t in rest}
        scarcest = min((t for t in rest if load[t]), key=lambda t: rest[t] / load[t])
        ratio = rest[scarcest] / load[scarcest]
        for task in [i for i in open_ if scarcest in tables_of[i]]:
            given[task] = round_down(weights[task] * ratio)
            open_.remove(task)
            for t in tables_of[task]:
                rest[t] -= Fraction(given[task])
    return {task: given[task] for task in weights}


def declared_costs(plan: Plan) -> dict[str, Cost]:
    """What each table made elsewhere is charged: its declared cost, for every protected table whose units it shows."""
    found = {}
    for name in plan.promise.private:
        external = plan.table[name].external
        if external is not None:
            columns = tuple(c.name for c in plan.table[name].modelled)
            view = View.of_table(name, columns)
            units = [t for t in plan.promise.protected if movement(plan.promise, view, columns, t).l1 > 0]
            found[name] = Cost(dict.fromkeys(units, external.cost), dict.fromkeys(units, external.delta))
    return found


def _require_left(left: Mapping[str, Fraction], elsewhere: Cost, *, epsilon: float, delta: float) -> None:
    for table, rest in left.items():
        if not rest > 0:
            spent = elsewhere.rho[table]
            taken = f"{epsilon_of_rho(spent, delta=delta):.4g}"
            raise BudgetError(
                f"tables made elsewhere take epsilon {taken} (rho {spent:g}) of {table!r}, which leaves nothing of"
                f" epsilon {epsilon:g}; ask for more than {taken}, or declare the rho of their mechanism"
            )


def _divided(
    plan: CompiledPlan, declared: Shares, todo: tuple[Task, ...], tables_of: Mapping[Task, tuple[str, ...]], rho: float
) -> tuple[dict[Task, Fraction], dict[str, dict[Task, Part]]]:
    """Return each task's weight, the smallest over the protected tables it touches; and what its part is in each."""
    weights: dict[Task, list[Fraction]] = {i: [] for i in todo}
    out = {}
    for t in plan.promise.protected:
        groups: dict[str, list[Task]] = {}
        for task in (i for i in todo if t in tables_of[i]):
            groups.setdefault(task.group, []).append(task)
        if not groups:
            continue
        share = {g: chosen.DOMAINS_SHARE if (x := getattr(declared, g)) is None else x for g in groups}
        rest = rho / sum(share.values())
        out[t] = _of_pots(plan, [(share[g], members) for g, members in groups.items()], rest)
        if declared.domains is None and "tables" in groups and any(_is_learned(i) for i in groups.get("domains", ())):
            out[t] = _as_needed(plan, out[t], _joint(plan, groups, share, rest), rest)
        for i, (part, _) in out[t].items():
            weights[i].append(Fraction(part))
    return {i: min(found) for i, found in weights.items()}, out


def _is_learned(task: Task) -> bool:
    """Whether a task learns where the values of a column lie."""
    return task.group == "domains" and not parse_degree(task.item)


def _of_pots(plan: CompiledPlan, pots: Sequence[tuple[float, list[Task]]], rest: float) -> dict[Task, Part]:
    """Divide pots of so large shares; ``rest`` is the budget of a share of one."""
    found: dict[Task, Part] = {}
    for share, members in pots:
        parts = _parts(plan, members, rest * share)
        found |= {i: (share * part, share * own) for i, (part, own) in zip(members, parts, strict=True)}
    return found


def _joint(
    plan: CompiledPlan, groups: Mapping[str, list[Task]], share: Mapping[str, float], rest: float
) -> dict[Task, Part]:
    """Divide domains, columns and links by what each is worth; links get no more than their share."""
    one = [g for g in ("domains", "tables", "links") if g in groups]
    alone = [(share[g], groups[g]) for g in groups if g not in one]
    found = _of_pots(plan, [*alone, (sum(share[g] for g in one), [i for g in one for i in groups[g]])], rest)
    if "links" not in groups or sum(found[i][0] for i in groups["links"]) <= share["links"]:
        return found
    both = (share["domains"] + share["tables"], [*groups["domains"], *groups["tables"]])
    return _of_pots(plan, [*alone, (share["links"], groups["links"]), both], rest)


def _as_needed(
    plan: CompiledPlan, apart: Mapping[Task, Part], joint: Mapping[Task, Part], rest: float
) -> dict[Task, Part]:
    """Go from what groups get apart towards what they get of one pot, as far as learned domains need it to be useful
    in the mean.
    """
    learned = {i: _priority(plan, replace(i, weight=1.0), {}) for i in apart if _is_learned(i)}

    def mixed(x: float) -> dict[Task, Part]:
        return {i: ((1 - x) * a + x * joint[i][0], (1 - x) * own + x * joint[i][1]) for i, (a, own) in apart.items()}

    def lost(x: float) -> float:
        rho = {i: ((1 - x) * apart[i][0] + x * joint[i][0]) * rest for i in learned}
        return sum(p.left(rho[i]) / p.error for i, p in learned.items()) / len(learned)

    steps = round(1 / chosen.WORTHWHILE)
    return mixed(next((i for i in range(steps) if lost(i / steps) <= chosen.USEFUL), steps) / steps)


def _parts(plan: CompiledPlan, members: Sequence[Task], rho: float) -> list[Part]:
    """Each task's part of a pot, and what of it is for what rows of one owner have in common."""
    if all(m.group == "sizes" for m in members):
        return [(1 / len(members), 0.0)] * len(members)
    siblings = _sibling_parts(plan, members)
    favours = [favoured(plan, task) for task in members]
    each = [_priority(plan, task, favour) for task, favour in zip(members, favours, strict=True)]
    found = shares(each, rho=rho)
    if any(siblings) and any(m.group != "links" for m in members):  # they have a part of what links alone would get
        even = [
            own if task.weight == 1.0 and not favour else _priority(plan, replace(task, weight=1.0), {})
            for own, task, favour in zip(each, members, favours, strict=True)
        ]
        usual = found if even == each else shares(even, rho=rho)
        links = sum(part for m, part in zip(members, usual, strict=True) if m.group == "links")
        siblings = [links * part for part in siblings]
    return [(own + (1 - sum(siblings)) * part, own) for own, part in zip(siblings, found, strict=True)]


def _sibling_parts(plan: CompiledPlan, members: Sequence[Task]) -> list[float]:
    """The part of the links' budget for what rows of one owner have in common, even where it is asked."""
    relations = [plan.relation.get((m.table, m.item)) if m.group == "links" else None for m in members]
    asking = [relation is not None and asks_for_siblings(plan, relation) for relation in relations]
    return [chosen.FOR_SIBLINGS * a / max(sum(asking), 1) for a in asking]


def _siblings(
    plan: CompiledPlan, given: Mapping[Task, float], parts: Mapping[str, Mapping[Task, Part]]
) -> dict[Task, float]:
    """What of each share is for siblings: the same part of it as in the column of the table that owns the rows."""
    return {
        i: given[i] * own / whole
        for t, found in parts.items()
        for i, (whole, own) in found.items()
        if own and plan.promise.root(i.table) == t
    }


def _priority(plan: CompiledPlan, task: Task, declared: Mapping[tuple[str, ...], float]) -> Priority:
    way = task_way(plan, task)
    if task.group == "domains":
        return domain_priority(plan, task.table, task.item, weight=task.weight)
    if task.group == "tables":
        return table_priority(plan, task.table, way=way, weight=task.weight * (1 + sum(declared.values())))
    if key := parse_newcomer(task.item):
        return popularity_priority(plan, plan.relation[task.table, key], weight=task.weight)
    relation = plan.relation[task.table, task.item]
    return relation_priority(plan, relation, way=way, weight=task.weight, favoured=declared)
