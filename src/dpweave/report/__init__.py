"""The report: what the release says and what the copy holds. Made from the release alone, so it is safe to share.

Lives here: ``html_report`` (the public function), ``fidelity`` (what is compared),
``noisy_estimates`` (noisy counts with their errors), ``unit_views`` (rows of one owner),
``integrity`` (keys, nulls, types, rules), ``cards``, ``svg_figures`` and ``html_page`` (how it looks).

Does not live here: real rows. The import contract keeps this package away from sources and from the Curator.

Start with ``html_report``, then ``fidelity``.

``dpweave.report`` is this package and the public function at once: importing any part of the package
binds the name to it, so calling it writes the report, as :func:`dpweave.report.html_report.report` does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from dpweave.model.model import Model


class _Report(ModuleType):
    """A package that can be called."""

    def __call__(self, model: Model, db: Mapping[str, pa.Table], path: str | Path) -> None:
        """See :func:`dpweave.report.html_report.report`."""
        from dpweave.report.html_report import report

        report(model, db, path)


sys.modules[__name__].__class__ = _Report
