"""Answers that are kept: given in order, to their own questions, of their own fit, and only if they were paid for."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib

import numpy as np
import pytest

from dpweave.budget.kept_answers import KeptAnswers, _sealed, find
from dpweave.errors import BudgetError, LedgerError, UsageError
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.noise import InsecureNoise
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


def gone_on(ledger, noise=None) -> KeptAnswers:
    book = Ledger.open(
        ledger, database="shop", limit=Budget(2.0, 1e-6), tables=("people",), run=find(ledger, BOUND).run
    )
    kept = KeptAnswers(book, ledger, noise=noise)
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
    rest, last = whole[: whole.rfind(b'{"chain"')], whole[whole.rfind(b'{"chain"') :]
    forged = last.replace(b'"charge": 3', b'"charge": 9')
    kept.path.write_bytes(rest + forged)
    with pytest.raises(LedgerError, match="damaged"):  # nor is it what was written
        kept.lost(ledger)
    kept.path.write_bytes(rest + sealed(json.loads(forged)))
    with pytest.raises(LedgerError, match="was not charged for"):
        kept.lost(ledger)


def sealed(line: dict[str, object]) -> bytes:
    """A line as somebody may write it who knows how."""
    return _sealed(json.dumps({name: value for name, value in line.items() if name != "sum"}))


def test_any_bit_of_the_last_answer_is_enough(ledger):
    kept = find(ledger, BOUND)
    whole = kept.path.read_bytes()
    for at in range(whole.rfind(b'{"chain"'), len(whole) - 1):
        kept.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LedgerError, match="damaged"):
            find(ledger, BOUND)


def test_answers_of_version_0_3_are_given_too(ledger):
    """They have no digest of the line itself."""
    path, last, lines = find(ledger, BOUND).path, b"", []
    for line in path.read_bytes().splitlines():
        plain = {name: value for name, value in json.loads(line).items() if name != "sum"}
        plain["chain"] = hashlib.sha256(last).hexdigest()
        last = json.dumps(plain | ({"format": 1} if not lines else {})).encode() + b"\n"
        lines.append(last)
    path.write_bytes(b"".join(lines))
    kept = gone_on(ledger)
    assert [kept.recall(question(n)).counts[0][0, 0] for n in range(2)] == [0, -1]
    assert kept.recall(question(2)) is None
    kept.keep(question(2), Answer((np.array(7),)))
    assert find(ledger, BOUND).lines == 3


BOMB = base64.b64encode(zlib.compress(bytes(1 << 26), 9)).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"counts": None},
        {"counts": []},
        {"counts": [{"shape": [3], "data": 5}]},
        {"counts": [{"shape": [3], "data": "AA="}]},
        {"counts": [{"shape": [3], "data": "AAAA"}]},
        {"counts": [{"shape": [-3], "data": BOMB}]},
        {"counts": [{"shape": "ab", "data": BOMB}]},
        {"counts": [{"shape": [1 << 23], "data": BOMB}]},
        {"counts": [{"shape": [1 << 70], "data": BOMB}]},
        {"values": 5},
        {"values": [{"a": 1}]},
        {"noise": 5},
        {"noise": {"bit_generator": "PCG64"}},
    ],
)
def test_an_answer_that_somebody_wrote_is_refused_and_no_bug(ledger, change):
    """Digests are those of the file, so only what is in it is wrong."""
    path = find(ledger, BOUND).path
    head, first, _ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + sealed({**json.loads(first), **change}))
    with pytest.raises(LedgerError, match="damaged"):
        gone_on(ledger, noise=InsecureNoise(1)).recall(question(0))


def test_a_disk_that_takes_no_more_does_not_end_a_fit(ledger, monkeypatch):
    kept = gone_on(ledger)
    size = kept.path.stat().st_size
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.warns(RuntimeWarning, match="No space left"):
        kept.keep(question(2), Answer((np.array(7),)))
    monkeypatch.undo()
    kept.keep(question(3), Answer((np.array(7),)))  # after a gap, nothing more
    assert kept.path.stat().st_size == size
