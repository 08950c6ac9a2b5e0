"""Rows of which one column must not lie above another are paired so that it does not, before anything is linked.

A table model may draw the two apart. Rows that are mended afterwards swap them: a film that came back in May and was
lent in July was then lent in May, whatever leads to it. So, as soon as rows are drawn, those that no value inside their
bins could mend exchange the upper one with others, as long as that leaves fewer such rows. What is drawn of either
column stays as it is; what stands the wrong way round inside a bin is left to
:mod:`dpweave.weaving.kept_rules.rule_repair`, and so is what finds nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.plan.rules import Ordered
from dpweave.schema.domain import Bins, to_axis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.plan.plan import Plan

_ROUNDS = 100
"""How often rows that stand the wrong way round look for another, at random."""


class _Rule(NamedTuple):
    """Two columns, and by code the least value of the lower one and what is above all of the upper one."""

    lower: str
    upper: str
    least: FloatArray
    end: FloatArray

    def wrong(self, codes: Mapping[str, IntArray], rows: IntArray, upper: IntArray) -> IntArray:
        """Whether some rows could not keep the rule with other codes of the upper column: 1 or 0 each."""
        return np.asarray(self.least[codes[self.lower][rows]] >= self.end[upper], dtype=np.int64)


def exchanged_for_order(
    plan: Plan, name: str, codes: Mapping[str, IntArray], rng: np.random.Generator
) -> dict[str, IntArray]:
    """Codes of a table's rows, of which as few as can be have a lower value above the upper one, whatever their values
    inside bins.
    """
    out, rules = dict(codes), list(_rules(plan, name, codes))
    for rule in rules * len(rules):  # what one rule gave up for another may have room when that is kept
        beside = [r for r in rules if rule.upper in (r.lower, r.upper)]
        out[rule.upper] = _exchanged(out, rule, beside, rng)
    return out


def _rules(plan: Plan, name: str, codes: Mapping[str, IntArray]) -> Iterator[_Rule]:
    for rule in plan.constraints:
        if not isinstance(rule, Ordered) or rule.table != name or rule.key is not None:
            continue
        low, high = (plan.table[name].column[c] for c in (rule.lower, rule.upper))
        if not {rule.lower, rule.upper} <= codes.keys() or low.column.type != high.column.type:
            continue
        if isinstance(low.domain, Bins) and isinstance(high.domain, Bins):
            kind = low.column.type
            ends = [[float(to_axis(kind, e)) for e in domain.edges] for domain in (low.domain, high.domain)]
            # A row without one of the values keeps the rule, as do values outside, which fall into the first or last.
            yield _Rule(
                rule.lower,
                rule.upper,
                np.array([-np.inf, *ends[0][1:-1], -np.inf]),
                np.array([*ends[1][1:-1], np.inf, np.inf]),
            )


def _exchanged(
    codes: Mapping[str, IntArray], rule: _Rule, beside: Sequence[_Rule], rng: np.random.Generator
) -> IntArray:
    """The upper codes, exchanged between two rows wherever fewer of these then break any rule on them."""
    upper = codes[rule.upper].copy()

    def broken(rows: IntArray, given: IntArray) -> IntArray:
        count = np.zeros(len(rows), dtype=np.int64)
        for r in beside:
            if r.upper == rule.upper:
                count += r.wrong(codes, rows, given)
            else:
                count += np.asarray(r.least[given] >= r.end[codes[r.upper][rows]], dtype=np.int64)
        return count

    for _ in range(_ROUNDS):
        wrong = np.flatnonzero(rule.wrong(codes, np.arange(len(upper)), upper))
        if not len(wrong):
            break
        one = rng.permutation(wrong)[: -(-len(wrong) // 2)]  # the others may be what these look for
        two, first = np.unique(rng.integers(0, len(upper), len(one)), return_index=True)
        one, apart = one[first], ~np.isin(two, one)
        one, two = one[apart], two[apart]
        before = broken(one, upper[one]) + broken(two, upper[two])
        better = broken(one, upper[two]) + broken(two, upper[one]) < before
        one, two = one[better], two[better]
        upper[one], upper[two] = upper[two], upper[one]
    return upper
