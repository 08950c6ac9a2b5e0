"""Answers that are kept: given in order, to their own questions, of their own fit, and only if they were paid for."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.budget.kept_answers import KeptAnswers, find
from dpweave.errors import BudgetError, LedgerError, UsageError
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.release import Answer, Question

BOUND = {"plan": "p", "source": "shop", "epsilon": "1.0", "delta": "1e-06"}
LIMIT = Budget(1.0, 1e-7)


def question(n: int) -> Question:
    return Question({"verb": "measure", "what": f"q{n}", "sigma": [1.5]}, None, (n,))


@pytest.fixture
def ledger(tmp_path):
    """A run that was cut off: two answers, and a charge without one."""
    path = tmp_path / "ledger.jsonl"
    book = Ledger.open(path, database="shop", limit=LIMIT, tables=("people",))
    kept = KeptAnswers(book, path)
    kept.begin(BOUND)
    for n in range(3):
        book.charge(Cost({"people": 0.25}, {"people": 3e-8}), what=question(n).what)
        if n < 2:
            kept.keep(question(n), Answer((np.arange(6).reshape(2, 3) - n,), ("é", "\ud800")))
    book.close()
    return path


def gone_on(ledger) -> KeptAnswers:
    book = Ledger.open(
        ledger, database="shop", limit=Budget(2.0, 1e-6), tables=("people",), run=find(ledger, BOUND).run
    )
    kept = KeptAnswers(book, ledger)
    kept.go_on()
    return kept


def test_answers_are_given_in_order_and_then_no_more(ledger):
    with find(ledger, BOUND).path.open("ab") as file:
        file.write(b'{"chain": "cut o')  # never used
    kept = gone_on(ledger)
    for n in range(2):
        answer = kept.recall(question(n))
        assert answer is not None
        assert answer.counts[0].tolist() == [[-n, 1 - n, 2 - n], [3 - n, 4 - n, 5 - n]]
        assert answer.values == ("é", "\ud800")
    assert kept.recall(question(2)) is None
    kept.keep(question(2), Answer((np.array(7),)))
    assert find(ledger, BOUND).lines == 3


def test_what_was_charged_and_not_answered_is_paid_once_more(ledger):
    kept = find(ledger, BOUND)
    assert [e.what["what"] for e in kept.lost(ledger)] == ["q2"]
    assert kept.above(ledger, LIMIT, delta=1e-6) == Budget(1.25, 1.3e-7)
    with pytest.raises(BudgetError, match="lost so many answers"):
        kept.above(ledger, LIMIT, delta=1.2e-7)


def test_another_question_is_refused(ledger):
    with pytest.raises(UsageError, match=r"answer 1 in .* belongs to another question than 'q1'.*Nothing was charged"):
        gone_on(ledger).recall(question(1))


@pytest.mark.parametrize("name", BOUND)
def test_answers_of_another_fit_are_refused_by_what_differs(ledger, name):
    with pytest.raises(UsageError, match=f"belong to another {name}; resume with"):
        find(ledger, BOUND | {name: "other"})


def test_where_nothing_was_kept_nothing_is_begun(tmp_path):
    with pytest.raises(UsageError, match="nothing to resume"):
        find(tmp_path / "ledger.jsonl", BOUND)


def test_answers_that_were_changed_or_not_paid_for_are_refused(ledger):
    kept = find(ledger, BOUND)
    whole = kept.path.read_bytes()
    kept.path.write_bytes(whole.replace(b'"charge": 2', b'"charge": 4', 1))
    with pytest.raises(LedgerError, match="damaged"):  # the next line no longer follows it
        find(ledger, BOUND)
    kept.path.write_bytes(
        whole[: whole.rfind(b'{"chain"')] + whole[whole.rfind(b'{"chain"') :].replace(b'"charge": 3', b'"charge": 9')
    )
    with pytest.raises(LedgerError, match="was not charged for"):
        kept.lost(ledger)


def test_a_disk_that_takes_no_more_does_not_end_a_fit(ledger, monkeypatch):
    kept = gone_on(ledger)
    size = kept.path.stat().st_size
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.warns(RuntimeWarning, match="No space left"):
        kept.keep(question(2), Answer((np.array(7),)))
    monkeypatch.undo()
    kept.keep(question(3), Answer((np.array(7),)))  # after a gap, nothing more
    assert kept.path.stat().st_size == size
