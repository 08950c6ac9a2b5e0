"""What people read: the report from the release alone, and the evaluation against real rows, which is not private.

``dpweave.report`` is this package and the public function at once: importing any part of the package binds the name to it,
so calling it writes the report, as :func:`dpweave.report.html.report` does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from dpweave.model import Model


class _Report(ModuleType):
    """A package that can be called."""

    def __call__(self, model: Model, db: Mapping[str, pa.Table], path: str | Path) -> None:
        """See :func:`dpweave.report.html.report`."""
        from dpweave.report.html import report

        report(model, db, path)


sys.modules[__name__].__class__ = _Report
