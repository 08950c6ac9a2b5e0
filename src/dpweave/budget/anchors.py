"""An anchor: one line to keep elsewhere, against which a ledger can be held later.

Every line of a ledger carries the digest of the one before, so the digest of the last line stands for the whole file.
Whoever may write the ledger can cut off its end, or write all of it anew: nothing in the file tells. An anchor does
that was printed before and kept where they cannot write.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from dpweave.budget.spending import whole_lines
from dpweave.errors import LedgerError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

ANCHOR = re.compile(r"dpweave ledger: (\d{1,15}) lines, sha256 ([0-9a-f]{64})")


def anchor(path: Path | str) -> str:
    """Return the anchor of a ledger as it is now; a ledger that is damaged is refused."""
    lines = whole_lines(path)
    return f"dpweave ledger: {len(lines)} lines, sha256 {_digest(lines, len(lines))}"


def require_anchors(path: Path | str, text: str) -> int:
    """Refuse a ledger that does not begin with what each anchor in ``text`` knows. Returns how many anchors held."""
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    found = [ANCHOR.fullmatch(line) for line in kept]
    if not kept or None in found:
        raise UsageError("an anchor is a line that 'dpweave ledger FILE --anchor' has printed, whole and as it was")
    lines = whole_lines(path)
    for count, digest in (m.groups() for m in found if m):
        if int(count) > len(lines):
            raise LedgerError(
                f"ledger {path} was cut off: it has {len(lines)} lines, and an anchor knows {count}; restore it from a"
                " copy, and do not spend by it"
            )
        if _digest(lines, int(count)) != digest:
            raise LedgerError(
                f"ledger {path} was changed: its first {count} lines are not those that an anchor knows; restore it"
                " from a copy, and do not spend by it"
            )
    return len(kept)


def _digest(lines: list[bytes], count: int) -> str:
    return hashlib.sha256(lines[count - 1] if count else b"").hexdigest()
