"""A copy, read back: it is ours to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpweave.plan import Plan
    from dpweave.synthetic import SyntheticDatabase


def read_copy(target: str, plan: Plan) -> SyntheticDatabase:
    """Read a synthetic database back."""
    from dpweave.sources import open_source
    from dpweave.synthetic import SyntheticDatabase

    with open_source(target) as opened:
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        return SyntheticDatabase(plan.database, {name: opened.whole(name) for name in plan.database.names})
