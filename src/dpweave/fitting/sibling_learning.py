"""What rows of one owner have in common: asked once their owners' columns are learned."""

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
    window: CuratorWindow, relation: Relation, problem: LinkProblem, pairs: IntArray, *, rho: float
) -> NoisyMoments | None:
    """Ask for moments around the shares that the copy has, with a clip for vectors as long as its own; None where the
    rows have no columns.
    """
    own, theirs = _columns(window, relation)
    known = OwnedRows(
        {n: problem.left[n][pairs[:, 0]].astype(np.int64) for n in own},
        {n: problem.right[n] for n in theirs},
        pairs[:, 1],
        problem.shape,
    )
    bound = window.bound(relation.key)
    asked = question(known, relation.target, rho=rho, rows=problem.links_measured, bound=bound)
    return None if asked is None else window.measure_moments(asked, rho=rho)
