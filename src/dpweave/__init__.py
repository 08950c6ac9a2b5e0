"""dpweave: turn a private relational database into a synthetic one that anybody may have."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpweave.linking import Links, link
    from dpweave.links.pgd import PGD
    from dpweave.model import Model, load
    from dpweave.pipeline import fit
    from dpweave.plan import Plan
    from dpweave.report.evaluation import Evaluation, evaluate
    from dpweave.report.html import report

_HOMES = {
    "Evaluation": "dpweave.report.evaluation",
    "Links": "dpweave.linking",
    "Model": "dpweave.model",
    "PGD": "dpweave.links.pgd",
    "Plan": "dpweave.plan",
    "evaluate": "dpweave.report.evaluation",
    "fit": "dpweave.pipeline",
    "link": "dpweave.linking",
    "load": "dpweave.model",
    "report": "dpweave.report.html",
}

__all__ = ["PGD", "Evaluation", "Links", "Model", "Plan", "evaluate", "fit", "link", "load", "report"]


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that ``import dpweave`` stays quick."""
    if name == "__version__":
        return _version("dpweave")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dpweave' has no attribute {name!r}")
