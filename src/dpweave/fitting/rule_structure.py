"""What the rules of a plan mean for table models: combinations that cannot occur, columns that follow from others."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import PlanError
from dpweave.measure.answers import averaged, of_columns, onto
from dpweave.measure.purse import Purse
from dpweave.plan.rule_checks import codes_of, is_modelled
from dpweave.plan.rules import Allowed, settling_order
from dpweave.privacy.window import NoisyMarginal
from dpweave.schema.domain import Bins, Categories, size
from dpweave.tables.base import StructuralZero, Structure
from dpweave.tables.external import require_kept
from dpweave.tables.graphical.dependencies import learned_dependency
from dpweave.tables.session import require_structure
from dpweave.weaving.kept_rules.declared_rules import combinations_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.plan import Plan
    from dpweave.plan.rules import Determined
    from dpweave.privacy.window import Window


def with_zeros(
    plan: Plan,
    name: str,
    structure: Structure,
    public: Mapping[str, pa.Table],
    external: Mapping[str, IntArray] | None = None,
) -> Structure:
    """Add the combinations that a table's rules forbid. What cannot hold is refused; nothing is spent yet.

    ``external`` are the codes of rows that were made elsewhere.
    """
    rules = [r for r in plan.constraints if isinstance(r, Allowed) and r.table == name]
    if not rules:
        return structure
    structure = replace(structure, zeros=tuple(_zero(plan, rule, public) for rule in rules))
    columns = dict.fromkeys(c for rule in rules for c in rule.columns)
    try:
        require_structure({c: _codes(plan, name, c) for c in columns}, structure)
        if external is not None:
            require_kept(external, structure)
    except PlanError as error:
        raise PlanError(f"table {name!r}: {error}") from None
    return structure


def _codes(plan: Plan, table: str, column: str) -> int:
    planned = plan.table[table].column[column]
    assert isinstance(planned.domain, Categories)
    return size(planned.domain, nullable=planned.column.nullable)


def _zero(plan: Plan, rule: Allowed, public: Mapping[str, pa.Table]) -> StructuralZero:
    mask = np.ones([_codes(plan, rule.table, c) for c in rule.columns], dtype=np.bool_)
    for code in codes_of(plan, rule, combinations_of(rule, public)):
        mask[code] = False
    return StructuralZero(rule.columns, mask)


def ask_for_dependencies(
    plan: Plan, name: str, window: Window, structure: Structure, *, rho: float, rows: float
) -> tuple[Structure, float]:
    """Ask what columns follow to, where rules say that they do. Returns what is known by that, and is left of ``rho``.

    A column that follows need not be fitted, so its share of the budget, as large as every other column's, goes into
    this. A rule that the model has no room for, or that what was learned contradicts, is left to be mended in rows.
    """
    structure = with_least_degrees(plan, name, structure)
    purse = Purse(rho)
    each = rho / max(sum(size > 1 for size in window.shape.values()), 1)
    for rule in _followed(plan, name, window.shape, structure):
        # Shares that make the sum of the noise of all cells least, as in Asking.shares.
        sizes = [window.shape[c] for c in rule.columns]
        weights = [
            n ** (2 / 3) for n in (math.prod(sizes) * window.shape[rule.dependent], window.shape[rule.dependent])
        ]
        clique = (*rule.columns, rule.dependent)
        noisy, single = window.measure([clique, (rule.dependent,)], rho=purse.take(each), weights=weights)
        structure = _with(window.shape, structure, noisy, single, rows=rows)
    return structure, purse.left


def with_dependencies(
    plan: Plan,
    name: str,
    shape: Mapping[str, int],
    structure: Structure,
    answers: Sequence[NoisyMarginal],
    *,
    rows: float,
) -> Structure:
    """Add what answers say that columns follow to, and least degrees. Other rules are kept in rows alone."""
    structure = with_least_degrees(plan, name, structure)
    for rule in _followed(plan, name, shape, structure):
        clique = (*rule.columns, rule.dependent)
        known_counts = [onto(m, clique) for m in answers if {*clique} <= {*m.columns}]
        single = of_columns(answers, (rule.dependent,))
        if known_counts:
            noisy = averaged(known_counts)
            structure = _with(shape, structure, noisy, single or onto(noisy, (rule.dependent,)), rows=rows)
    return structure


def _followed(plan: Plan, name: str, shape: Mapping[str, int], structure: Structure) -> Iterator[Determined]:
    """Rules of a table by which a column follows from others, where a model can make use of that."""
    for rule in settling_order(plan.constraints):
        if rule.table != name or not is_modelled(plan, rule):
            continue
        cells = math.prod(shape[c] for c in (*rule.columns, rule.dependent))
        if cells <= structure.max_cells and shape[rule.dependent] not in (1, cells):
            yield rule  # else it is too much to count, or nothing to learn; so that some column keeps its share


def with_least_degrees(plan: Plan, name: str, structure: Structure) -> Structure:
    """Add that owners have no fewer rows than declared, where a group of degrees lies below that."""
    table, zeros = plan.compile().table[name], []
    for key in table.counted_keys if table.planned.external is None else ():
        domain = key.degree_codec.domain
        assert isinstance(domain, Bins)
        mask = np.array(domain.edges[1:], dtype=np.int64) <= key.planned.min_degree
        if mask.any() and not mask.all():
            zeros.append(StructuralZero((key.degree,), mask))
    return replace(structure, zeros=(*structure.zeros, *zeros))


def _with(
    shape: Mapping[str, int], structure: Structure, noisy: NoisyMarginal, single: NoisyMarginal, *, rows: float
) -> Structure:
    """Add what counts tell: the dependency, and how common each combination is that another column follows from.
    What contradicts the rest is left out.
    """
    found = learned_dependency(noisy, single, rows=rows, zeros=structure.zeros)
    sigma = noisy.sigma * math.sqrt(noisy.counts.shape[-1])
    summed = NoisyMarginal(found.determinants, noisy.counts.sum(axis=-1), sigma)
    known = replace(structure, dependencies=(*structure.dependencies, found), measured=(*structure.measured, summed))
    try:
        require_structure(shape, known)
    except PlanError:
        return structure
    return known
