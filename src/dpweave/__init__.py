"""dpweave: turn a private relational database into a synthetic one that anybody may have."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpweave.evaluation.evaluate import Evaluation, evaluate
    from dpweave.fitting.fit import fit
    from dpweave.fitting.link_tables import Links, link
    from dpweave.fitting.refit import refit
    from dpweave.links.pgd_learner import PGD
    from dpweave.model.model import Model, load
    from dpweave.model.verification import verify
    from dpweave.plan.plan import Plan
    from dpweave.report.html_report import report, verdict

_HOMES = {
    "Evaluation": "dpweave.evaluation.evaluate",
    "Links": "dpweave.fitting.link_tables",
    "Model": "dpweave.model.model",
    "PGD": "dpweave.links.pgd_learner",
    "Plan": "dpweave.plan.plan",
    "evaluate": "dpweave.evaluation.evaluate",
    "fit": "dpweave.fitting.fit",
    "link": "dpweave.fitting.link_tables",
    "load": "dpweave.model.model",
    "refit": "dpweave.fitting.refit",
    "report": "dpweave.report.html_report",
    "verdict": "dpweave.report.html_report",
    "verify": "dpweave.model.verification",
}

__all__ = [
    "PGD",
    "Evaluation",
    "Links",
    "Model",
    "Plan",
    "evaluate",
    "fit",
    "link",
    "load",
    "refit",
    "report",
    "verdict",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that ``import dpweave`` stays quick."""
    if name == "__version__":
        return _version("dpweave")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dpweave' has no attribute {name!r}")
