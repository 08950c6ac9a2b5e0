"""One release made of two: answers of an earlier fit and of a later one about the same database, and their total."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpweave.errors import BudgetError, PlanError, UsageError
from dpweave.privacy.accounting import Cost, subtract
from dpweave.privacy.certificate import said_together
from dpweave.privacy.release import Release, guarantees

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.model.model import Model
    from dpweave.privacy.certificate import Certificate


def require_extendable(model: Model, *, source: str, delta: float, spent_delta: float) -> None:
    """Refuse what cannot be extended, before anything is spent. ``spent_delta`` is what the later fit may take."""
    made_elsewhere = [t.name for t in model.plan.tables if t.external is not None]
    if made_elsewhere:
        raise PlanError(
            f"a model with tables made elsewhere ({', '.join(made_elsewhere)}) cannot be extended: what their makers"
            " declare would be charged twice; make a new fit"
        )
    if model.certificate.database != source:
        raise UsageError(
            f"the model was made from {model.certificate.database!r} and this source is {source!r}; extend it with the"
            " database that it was made from, under the same name"
        )
    used = max(_cost(model.certificate).delta.values(), default=0.0) + spent_delta
    if not subtract(max(model.certificate.delta, delta), used) > 0:
        raise BudgetError(
            f"both fits together would spend delta {used:g} of {max(model.certificate.delta, delta):g}, and no epsilon"
            " holds with none left; give a larger delta"
        )


def earlier_answers(model: Model) -> Release:
    """Return a release that begins with the answers of a model, and takes those to come."""
    known = model.release
    return Release([*known.measured], [*known.selected], [*known.discovered], [*known.summed_by_unit], [*known.moments])


TOTAL = "this is the total of"


def total(earlier: Certificate, later: Certificate, protected: Sequence[str]) -> Certificate:
    """State what both fits together have promised: what is seen of a database twice costs the sum (zCDP composes).

    Charges of the earlier run name it; epsilon is stated at the larger delta.
    """
    delta = max(earlier.delta, later.delta)
    cost = _cost(earlier) + _cost(later)
    tables = guarantees(cost, tuple(protected), delta=delta)
    said = (
        f"{TOTAL} {1 + len(_runs(earlier))} fits of the same database, of which the last one spent epsilon"
        f" {later.epsilon:.4g}"
    )
    # What one run says of sums over tables, or over runs, is too little for all of them.
    alone = {*said_together(earlier.tables), *said_together(later.tables)}
    kept = [c for c in (*earlier.caveats, *later.caveats) if c not in alone and not c.startswith(TOTAL)]
    return replace(
        later,
        epsilon=max(g.epsilon for g in tables),
        delta=delta,
        rho=max(g.rho for g in tables),
        tables=tables,
        events=tuple({"run": earlier.run, **e} for e in earlier.events) + later.events,
        insecure=earlier.insecure or later.insecure,
        caveats=(*dict.fromkeys(kept), *said_together(tables), said),
    )


def _cost(certificate: Certificate) -> Cost:
    return sum((Cost(e["rho"], e["delta"]) for e in certificate.events), Cost.zero())


def _runs(certificate: Certificate) -> set[str]:
    return {str(e.get("run", certificate.run)) for e in certificate.events} | {certificate.run}
