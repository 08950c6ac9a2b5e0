"""What rows of one owner have in common, and those of one unit: asked once their owners' columns are learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.measure.per_unit.sibling_moments import OwnedRows, question

if TYPE_CHECKING:
    from dpweave.arrays import IntArray
    from dpweave.links.link_method import LinkProblem
    from dpweave.plan.relations import Relation
    from dpweave.privacy.curator import CuratorWindow
    from dpweave.privacy.window import NoisyMoments


def _columns(window: CuratorWindow, relation: Relation) -> tuple[list[str], list[str]]:
    """Columns of the rows themselves and of their owners, as far as no other unit moves them."""
    units = window.units
    assert units is not None
    own = [n for n, a in relation.left if not a.path and units.hold((n,))]
    return own, [n for n, a in relation.right if len(a.path) == 1 and units.hold((n,))]


def learn_siblings(
    window: CuratorWindow, relation: Relation, problem: LinkProblem, pairs: IntArray, above: IntArray, *, rho: float
) -> NoisyMoments | None:
    """Ask for moments around the shares that the copy has, with a clip for vectors as long as its own; None where the
    rows have no columns. ``above`` is the unit of each right row, below 0 where there is none.
    """
    own, theirs = _columns(window, relation)
    known = OwnedRows(
        {n: problem.left[n][pairs[:, 0]].astype(np.int64) for n in own},
        {n: problem.right[n] for n in theirs},
        pairs[:, 1],
        problem.shape,
        above,
    )
    bound = window.bound(relation.key)
    asked = question(known, relation.target, rho=rho, rows=problem.links_measured, bound=bound)
    return None if asked is None else window.measure_moments(asked, rho=rho)


def learn_cousins(
    window: CuratorWindow,
    relation: Relation,
    problem: LinkProblem,
    pairs: IntArray,
    above: IntArray,
    root: str,
    *,
    most_rows: int,
    rho: float,
) -> NoisyMoments | None:
    """Ask for moments of rows of one unit, a row of ``root``, whichever of its owners they lead to.

    No unit has more than ``most_rows``.
    """
    own, _ = _columns(window, relation)
    above = above[pairs[:, 1]]
    there = above >= 0
    rows = {n: problem.left[n][pairs[there, 0]].astype(np.int64) for n in own}
    known = OwnedRows(rows, {}, above[there], problem.shape)
    asked = question(known, root, rho=rho, rows=problem.links_measured, bound=most_rows)
    return None if asked is None else window.measure_moments(asked, rho=rho)
