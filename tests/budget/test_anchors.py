"""An anchor tells of lines that were cut off, changed or written anew; what was added since is no matter."""

from __future__ import annotations

import pytest

from dpweave.budget.anchors import anchor, require_anchors
from dpweave.errors import LedgerError, UsageError
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import Ledger


@pytest.fixture
def book(tmp_path):
    return Ledger.open(tmp_path / "ledger.jsonl", database="shop", limit=Budget(1.0, 0.0), tables=("people",))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def test_lines_that_come_later_break_no_anchor(book, path):
    kept = [anchor(path)]
    for _ in range(3):
        book.charge(Cost({"people": 0.1}, {}), what={})
        kept.append(anchor(path))
    assert kept[-1].startswith("dpweave ledger: 4 lines, sha256 ")
    assert require_anchors(path, "\n".join(kept) + "\n\n") == 4


def test_an_end_that_was_cut_off_or_changed_is_noticed(book, path):
    book.charge(Cost({"people": 0.1}, {}), what={})
    kept, whole = anchor(path), path.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    for content, match in (
        (first, "was cut off: it has 1 lines, and an anchor knows 2"),
        (b"", "was cut off: it has 0 lines"),
        (whole[:-1], "was cut off: it has 1 lines"),  # a torn line is none
        (whole.replace(b'{"people": 0.1}', b'{"people": 0.2}'), "was changed: its first 2 lines"),
    ):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match=match):
            require_anchors(path, kept)
    path.write_bytes(whole)
    assert require_anchors(path, kept) == 1


def test_a_ledger_that_was_written_anew_is_noticed(book, path):
    kept = anchor(path)
    path.unlink()
    Ledger.open(path, database="shop", limit=Budget(1.0, 0.0), tables=("people",))
    with pytest.raises(LedgerError, match="was changed"):
        require_anchors(path, kept)


@pytest.mark.parametrize("text", ["", "dpweave ledger: 1 lines", "anchors.txt", "dpweave ledger: x lines, sha256 0"])
def test_what_is_no_anchor_is_refused(book, path, text):
    with pytest.raises(UsageError, match="an anchor is a line"):
        require_anchors(path, text)
