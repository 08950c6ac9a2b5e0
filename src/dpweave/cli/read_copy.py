"""A copy, read back: it is ours to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpweave.model.synthetic_database import SyntheticDatabase
    from dpweave.plan.plan import Plan


def read_copy(target: str, plan: Plan) -> SyntheticDatabase:
    """Read a synthetic database back."""
    from dpweave.engines.opening import open_source
    from dpweave.model.synthetic_database import SyntheticDatabase

    with open_source(target) as opened:
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        return SyntheticDatabase(plan.database, {name: opened.whole(name) for name in plan.database.names})
