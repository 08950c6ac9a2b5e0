"""The ledger: filter before write, durable before read, shared by processes, suspicious of every edit."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from dpweave.budget.running_fits import begin as begin_run
from dpweave.budget.running_fits import is_going
from dpweave.budget.spending import DatabaseSummary, read
from dpweave.errors import BudgetError, LedgerError, UsageError
from dpweave.privacy import ledger as module
from dpweave.privacy.accounting import Budget, Cost, epsilon_of_rho, rho_of_epsilon, split, subtract
from dpweave.privacy.ledger import Cap, Ledger, release, set_cap

LIMIT = Budget(1.0, 1e-6)


def users(rho: float, delta: float = 0.0) -> Cost:
    return Cost({"users": rho}, {"users": delta} if delta else {})


def begin(path: Path | None, *, limit: Budget = LIMIT, database: str = "shop", tables=("users", "movies")) -> Ledger:
    return Ledger.open(path, database=database, limit=limit, tables=tables, label="a test", details={"plan": 1})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, path: Path) -> Ledger:
    return begin(path if request.param == "file" else None)


def test_charges_add_up(ledger: Ledger) -> None:
    ledger.charge(users(0.25, 1e-7), what={"measure": ["age"]})
    ledger.charge(Cost({"users": 0.5, "movies": 0.125}, {}), what={})
    assert ledger.spent == Cost({"users": 0.75, "movies": 0.125}, {"users": 1e-7})
    assert ledger.remaining == {"users": Budget(0.25, subtract(1e-6, 1e-7)), "movies": Budget(0.875, 1e-6)}
    assert [entry.kind for entry in ledger.entries] == ["open", "charge", "charge"]
    assert [entry.n for entry in ledger.entries] == [1, 2, 3]
    assert ledger.entries[1].what == {"measure": ["age"]}
    assert ledger.entries[0].what == {
        "limit": {"rho": 1.0, "delta": 1e-6},
        "tables": ["users", "movies"],
        "details": {"plan": 1},
        "reserved": True,
    }
    assert {entry.run for entry in ledger.entries} == {ledger.run}


@pytest.mark.parametrize("cost", [users(0.5000001), users(0.1, 1.1e-6), Cost({"movies": 1.1}, {}), users(1e300)])
def test_a_charge_beyond_the_limit_is_refused_before_it_is_written(ledger: Ledger, cost: Cost, path: Path) -> None:
    ledger.charge(users(0.5), what={})
    before = path.read_bytes() if path.exists() else b""
    with pytest.raises(BudgetError, match=r"table '(users|movies)' asks for rho .* are left in this run; lower it"):
        ledger.charge(cost, what={})
    assert (path.read_bytes() if path.exists() else b"") == before
    assert ledger.spent == users(0.5)
    ledger.charge(users(0.5), what={})  # what is left can still be spent


def test_refusal_names_table_request_and_rest(ledger: Ledger) -> None:
    ledger.charge(users(0.75), what={})
    with pytest.raises(BudgetError) as caught:
        ledger.charge(Cost({"movies": 0.5, "users": 0.5}, {}), what={})
    assert str(caught.value) == (
        "table 'users' asks for rho 0.5 and delta 0, but rho 0.25 and delta 1e-06 are left in this run; "
        "lower it or begin a new run"
    )


def test_the_whole_limit_can_be_spent_in_shares(ledger: Ledger) -> None:
    for share in split(1.0, [3, 1, 4, 1, 5, 9, 2, 6]):
        ledger.charge(users(share), what={})
    with pytest.raises(BudgetError):
        ledger.charge(users(1e-12), what={})
    ledger.charge(Cost.zero(), what={"free": True})


def test_sums_of_costs_are_recorded_rounded_up(path: Path) -> None:
    ledger = begin(path)
    cost = users(0.1) + users(0.2)
    ledger.charge(cost, what={})
    assert ledger.spent.exact[0]["users"] >= cost.exact[0]["users"]
    assert ledger.spent.rho == cost.rho
    assert read(path).databases["shop"].total == ledger.spent


def test_only_protected_tables_can_be_charged(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="table 'user' is charged but not protected in this run; did you mean 'users'"):
        ledger.charge(Cost({"user": 0.1}, {}), what={})
    with pytest.raises(UsageError, match="table 'x'"):
        ledger.charge(Cost({}, {"x": 0.1}), what={})


@pytest.mark.parametrize("what", [{"x": math.nan}, {"x": object()}, {"x": {1, 2}}])
def test_what_must_be_plain(ledger: Ledger, what: dict[str, object], path: Path) -> None:
    before = path.read_bytes() if path.exists() else b""
    with pytest.raises(UsageError, match="plain JSON"):
        ledger.charge(users(0.1), what=what)
    assert ledger.spent == Cost.zero()
    assert (path.read_bytes() if path.exists() else b"") == before


def test_format_of_a_line(path: Path) -> None:
    ledger = begin(path)
    ledger.charge(users(0.1, 1e-8), what={"measure": "age"})
    first, second = path.read_bytes().splitlines(keepends=True)
    line = json.loads(second)
    assert line.keys() == {"n", "chain", "time", "kind", "run", "database", "label", "rho", "delta", "what"}
    assert line["n"] == 2
    assert line["chain"] == hashlib.sha256(first).hexdigest()
    assert line["time"].endswith("+00:00")
    assert (line["kind"], line["database"], line["label"], line["run"]) == ("charge", "shop", "a test", ledger.run)
    assert (line["rho"], line["delta"], line["what"]) == ({"users": 0.1}, {"users": 1e-8}, {"measure": "age"})


def test_credentials_are_cut_out(path: Path) -> None:
    address = "postgresql://alice:s3cr@t@db.example/shop"
    ledger = Ledger.open(
        path, database=address, limit=LIMIT, tables=["users"], label=address, details={"url": [address]}
    )
    ledger.charge(users(0.1), what={"from": "mysql://bob:hunter2@h?password=hunter3&x=1"})
    set_cap(path, database=address, epsilon=10.0, delta=1e-3)
    text = path.read_text()
    assert not any(secret in text for secret in ("alice", "s3cr", "bob", "hunter"))
    assert ledger.database == "postgresql://db.example/shop"
    assert read(path).databases["postgresql://db.example/shop"].cap == Cap(10.0, 1e-3)


def test_runs_have_their_own_limit_and_share_the_file(path: Path) -> None:
    one, two = begin(path), begin(path)
    one.charge(users(1.0), what={})
    two.charge(users(0.75), what={})
    other = begin(path, database="school")
    other.charge(users(0.5), what={})
    assert (one.spent, two.spent) == (users(1.0), users(0.75))
    assert one.run != two.run
    summary = read(path)
    assert summary.databases["shop"].total == users(1.75)
    assert summary.databases["school"].total == users(0.5)
    assert list(summary.databases["shop"].runs) == [one.run, two.run]
    assert [entry.kind for entry in summary.databases["shop"].runs[two.run]] == ["open", "charge"]
    assert summary.databases["shop"].epsilon("users", delta=1e-6) == epsilon_of_rho(1.75, delta=1e-6)
    assert summary.databases["shop"].epsilon("movies", delta=1e-6) == 0.0
    with pytest.raises(UsageError, match="delta is"):
        summary.databases["shop"].epsilon("users", delta=0)


def test_summary_spends_deltas_first(path: Path) -> None:
    ledger = begin(path)
    ledger.charge(users(0.5, 1e-7), what={})
    shop = read(path).databases["shop"]
    assert shop.epsilon("users", delta=1e-6) == epsilon_of_rho(0.5, delta=subtract(1e-6, 1e-7))
    with pytest.raises(UsageError, match="has spent 1e-07 of it"):
        shop.epsilon("users", delta=1e-7)


# Caps


def test_a_cap_binds_all_runs_of_its_database(path: Path) -> None:
    whole = rho_of_epsilon(2.0, delta=1e-6)
    half = Budget(whole / 2)
    one, two, late = (begin(path, limit=half) for _ in range(3))
    set_cap(path, database="shop", epsilon=2.0, delta=1e-6)  # they had begun
    one.charge(users(whole / 2), what={})
    two.charge(users(whole / 2), what={})
    before = path.read_bytes()
    with pytest.raises(BudgetError, match=r"under the cap of 'shop' \(epsilon 2, delta 1e-06\); lower it or raise"):
        late.charge(users(whole / 1000), what={})
    assert path.read_bytes() == before
    late.charge(Cost({"movies": whole / 2}, {}), what={})  # another column
    begin(path, database="school").charge(users(1.0), what={})  # another database
    set_cap(path, database="shop", epsilon=3.0, delta=1e-6)
    late.charge(users(whole / 1000), what={})
    assert read(path).databases["shop"].cap == Cap(3.0, 1e-6)


def test_a_run_that_cannot_fit_under_the_cap_does_not_begin(path: Path) -> None:
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    before = path.read_bytes()
    rho = rho_of_epsilon(1.0, delta=1e-6)
    with pytest.raises(BudgetError, match="under the cap"):
        begin(path, limit=Budget(rho * 1.001))
    with pytest.raises(BudgetError, match="under the cap"):
        begin(path, limit=Budget(rho, 1e-7))
    assert path.read_bytes() == before
    begin(path, limit=Budget(rho)).charge(users(rho), what={})
    delta = subtract(1e-6, 1e-7)
    set_cap(path, database="other", epsilon=1.0, delta=1e-6)
    begin(path, database="other", limit=Budget(rho_of_epsilon(1.0, delta=delta), 1e-7))


def test_a_run_reserves_its_whole_limit_until_it_ends(path: Path) -> None:
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    whole = rho_of_epsilon(1.0, delta=1e-6)
    one, _two = (begin(path, limit=Budget(whole / 4)) for _ in range(2))
    one.charge(users(whole / 8), what={})
    with pytest.raises(BudgetError, match="under the cap"):  # a half is reserved
        begin(path, limit=Budget(whole * 0.51))
    three = begin(path, limit=Budget(whole / 2))
    with pytest.raises(BudgetError, match="under the cap"):
        begin(path, limit=Budget(whole / 100))
    one.close()
    with pytest.raises(BudgetError, match="under the cap"):  # what it has spent is not given back
        begin(path, limit=Budget(whole * 0.126))
    begin(path, limit=Budget(whole * 0.124))
    three.charge(users(whole / 2), what={})
    one.charge(users(whole / 8), what={})  # too late to be reserved, and still checked
    assert read(path).databases["shop"].total.rho["users"] == pytest.approx(whole * 0.75)
    begin(path, database="school", limit=Budget(whole * 9))  # another database


def test_what_is_reserved_adds_up_exactly(path: Path) -> None:
    """Seven runs for a seventh each: the sum of rounded parts is no more than the whole, and not one digit less."""
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    whole = rho_of_epsilon(1.0, delta=1e-6)
    for share in split(whole, [1] * 7):
        begin(path, limit=Budget(share)).charge(users(share), what={})
    with pytest.raises(BudgetError, match="under the cap"):
        begin(path, limit=Budget(whole * 1e-9))


def test_lines_of_versions_before_reserve_nothing(path: Path) -> None:
    first = begin(path)
    first.charge(users(0.5), what={})
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    del lines[0]["what"]["reserved"]
    before = b""
    for line in lines:
        line["chain"] = hashlib.sha256(before.splitlines(keepends=True)[-1] if before else b"").hexdigest()
        before += (json.dumps(line) + "\n").encode()
    path.write_bytes(before)
    assert read(path).databases["shop"].total == users(0.5)
    assert not read(path).databases["shop"].reserved
    set_cap(path, database="shop", epsilon=epsilon_of_rho(1.5, delta=1e-6), delta=1e-6)
    begin(path, limit=Budget(0.99))


@pytest.mark.parametrize("limit", [None, {}, {"rho": -1.0}, {"rho": 1.0, "x": 1}, [1.0], {"rho": "much"}])
def test_a_broken_reservation_is_found(path: Path, limit: object) -> None:
    begin(path)
    path.write_bytes(replaced(path.read_bytes(), what={"limit": limit, "tables": ["users"], "reserved": True}))
    refused(path, 1)


def test_deltas_use_up_a_cap(path: Path) -> None:
    one, two = (begin(path, limit=Budget(1e-3, 6e-7)) for _ in range(2))
    set_cap(path, database="shop", epsilon=50.0, delta=1e-6)
    one.charge(users(1e-3, 6e-7), what={})
    with pytest.raises(BudgetError, match="rho 1e-06 and delta 6e-07, but rho"):
        two.charge(users(1e-6, 6e-7), what={})
    with pytest.raises(BudgetError, match="delta 4e-07 are left under the cap"):
        two.charge(users(0.0, 4e-7), what={})


def test_a_cap_below_what_was_spent_stops_spending(path: Path) -> None:
    ledger = begin(path)
    ledger.charge(users(0.5), what={})
    set_cap(path, database="shop", epsilon=0.1, delta=1e-6)
    with pytest.raises(BudgetError, match="but rho 0 and"):
        ledger.charge(users(1e-9), what={})


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf])
def test_bad_cap_epsilon(path: Path, epsilon: float) -> None:
    with pytest.raises(UsageError, match="epsilon of the cap"):
        set_cap(path, database="shop", epsilon=epsilon, delta=1e-6)
    assert not path.exists()


@pytest.mark.parametrize("delta", [0, 1, -1e-6, math.nan])
def test_bad_cap_delta(path: Path, delta: float) -> None:
    with pytest.raises(UsageError, match="delta of the cap"):
        set_cap(path, database="shop", epsilon=1.0, delta=delta)
    assert not path.exists()


# Processes

RACER = """
import sys, time
from dpweave.errors import BudgetError
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import Ledger
path, limit, step, pause = sys.argv[1], *map(float, sys.argv[2:])
ledger = Ledger.open(path, database="shop", limit=Budget(limit), tables=["users"])
print("ready", flush=True)
sys.stdin.readline()
charges = 0
try:
    while True:
        ledger.charge(Cost({"users": step}, {}), what={"i": charges})
        charges += 1
        time.sleep(pause)
except BudgetError:
    print(charges, flush=True)
"""

VICTIM = """
import sys, time
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[1], database="shop", limit=Budget(1.0), tables=["users"])
ledger.charge(Cost({"users": 0.25}, {}), what={"step": "before the rows"})
print("charged", flush=True)
time.sleep(60)  # the rows would be read here
"""


def start(code: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("pause", [0.0, 0.01])
def test_two_processes_racing_on_one_ledger_never_overspend(path: Path, pause: float) -> None:
    whole = rho_of_epsilon(1.0, delta=1e-6)
    step = whole / 60.5
    racers = [start(RACER, path, whole, step, pause) for _ in range(2)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)  # which would have let only one begin
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    counts = [int(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sum(counts) == 60  # all that fits, and not one more
    assert pause == 0 or min(counts) > 0  # with pauses both take part
    shop = read(path).databases["shop"]
    assert shop.epsilon("users", delta=1e-6) <= 1.0
    assert epsilon_of_rho((sum(counts) + 1) * step, delta=1e-6) > 1.0


def test_a_killed_process_leaves_its_charge(path: Path) -> None:
    victim = start(VICTIM, path)
    assert victim.stdout.readline() == "charged\n"
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=30)
    shop = read(path).databases["shop"]
    assert shop.total == users(0.25)
    assert shop.entries[-1].what == {"step": "before the rows"}
    begin(path).charge(users(0.5), what={})  # its lock died with it
    assert read(path).databases["shop"].total == users(0.75)


def test_threads_sharing_one_ledger_never_overspend(path: Path) -> None:
    ledger = begin(path)
    done: list[int] = []

    def spend() -> None:
        while True:
            try:
                ledger.charge(users(1 / 32), what={})
            except BudgetError:
                return
            done.append(1)

    threads = [threading.Thread(target=spend) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 32
    assert read(path).databases["shop"].total == users(1.0)


CROWD = """
import sys
from dpweave.errors import BudgetError
from dpweave.privacy.accounting import Budget, Cost
from dpweave.budget.running_fits import begin
path, limit, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
charges = 0
try:
    asked = {"database": "shop", "limit": Budget(limit), "tables": ["users"], "delta": 1e-6, "label": None}
    with begin(path, **asked) as ledger:
        print("begun", flush=True)
        sys.stdin.readline()
        for _ in range(steps):
            ledger.charge(Cost({"users": limit / steps}, {}), what={})
            charges += 1
    print("done", charges, flush=True)
except BudgetError:
    print("refused", charges, flush=True)
"""


def crowd(paths: list[Path], limit: float, *, steps: int = 4) -> list[str]:
    """What several processes say in the end that all begin, and then all charge, at the
    same time; one for each name.
    """
    racers = [start(CROWD, path, limit, steps) for path in paths]
    assert {racer.stdout.readline() for racer in racers} == {"ready\n"}
    _go(racers)
    said = [(racer, racer.stdout.readline().strip()) for racer in racers]
    begun = [racer for racer, words in said if words == "begun"]
    _go(begun)
    ends = [racer.communicate(timeout=120)[0].strip() for racer in racers]
    return sorted(end or words for end, (_, words) in zip(ends, said, strict=True))


def _go(racers: list[subprocess.Popen[str]]) -> None:
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()


def test_of_many_runs_at_once_those_that_fit_succeed_and_no_other_spends(path: Path) -> None:
    whole = rho_of_epsilon(1.0, delta=1e-6)
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    assert crowd([path] * 20, whole / 7.5) == ["done 4"] * 7 + ["refused 0"] * 13
    shop = read(path).databases["shop"]
    assert shop.total.rho["users"] == pytest.approx(whole * 7 / 7.5)
    assert not shop.reserved
    assert sorted(p.name for p in path.parent.iterdir()) == ["ledger.jsonl", "ledger.jsonl.lock"]


@pytest.mark.parametrize("link", ["symbolic", "hard", "folder"])
def test_a_ledger_has_one_lock_whatever_name_it_is_reached_by(path: Path, link: str) -> None:
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    other = path.parent / "elsewhere" / "same.jsonl"
    if link == "folder":
        other.parent.symlink_to(path.parent)
        other = other.parent / path.name
    else:
        other.parent.mkdir()
        other.symlink_to(path) if link == "symbolic" else other.hardlink_to(path)
    whole = rho_of_epsilon(1.0, delta=1e-6)
    for round_ in range(1, 4):
        assert crowd([path, other], whole / 10, steps=32) == ["done 32"] * 2
        shop = read(path).databases["shop"]  # which checks the chain
        assert sum(entry.kind == "charge" for entry in shop.entries) == 64 * round_
    assert crowd([path, other] * 2, whole / 3) == ["done 4"] + ["refused 0"] * 3  # two fifths were left
    if link == "symbolic":
        assert list(other.parent.iterdir()) == [other]  # no second lock


def test_what_a_dead_run_reserved_is_given_back_and_what_it_spent_is_not(path: Path) -> None:
    whole = rho_of_epsilon(1.0, delta=1e-6)
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    victim = start(DYING, path, whole)
    assert victim.stdout.readline() == "charged\n"
    asked = {"database": "shop", "tables": ["users"], "delta": 1e-6, "label": None}
    with (
        pytest.raises(BudgetError, match="with 1 run not ended yet, it leaves nothing at delta 1e-06"),
        begin_run(path, limit=Budget(whole / 100), **asked),
    ):
        pass
    (run,) = read(path).databases["shop"].reserved
    assert is_going(path, run)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=30)
    assert not is_going(path, run)
    with pytest.raises(BudgetError, match="ask for epsilon"), begin_run(path, limit=Budget(whole * 0.76), **asked):
        pass
    with begin_run(path, limit=Budget(whole * 0.74), **asked) as ledger:
        ledger.charge(users(whole * 0.74), what={})
    assert read(path).databases["shop"].total.rho["users"] == pytest.approx(whole * 0.99)
    assert sorted(p.name for p in path.parent.iterdir()) == ["ledger.jsonl", "ledger.jsonl.lock"]


DYING = """
import sys, time
from dpweave.privacy.accounting import Budget, Cost
from dpweave.budget.running_fits import begin
limit = float(sys.argv[2])
with begin(sys.argv[1], database="shop", limit=Budget(limit), tables=["users"], delta=1e-6, label=None) as ledger:
    ledger.charge(Cost({"users": limit / 4}, {}), what={})
    print("charged", flush=True)
    time.sleep(60)
"""


def test_a_run_that_fails_gives_back_what_it_did_not_spend(path: Path) -> None:
    asked = {"database": "shop", "limit": LIMIT, "tables": ["users"], "delta": 1e-6, "label": None}
    with pytest.raises(UsageError, match="'films'"), begin_run(path, **asked) as ledger:
        ledger.charge(Cost({"films": 1.0}, {}), what={})
    shop = read(path).databases["shop"]
    assert [entry.kind for entry in shop.entries] == ["open", "close"]
    assert (shop.committed, dict(shop.reserved)) == (Cost.zero(), {})


def test_a_last_line_that_cannot_be_written_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is learned by then; the run is ended by the next one."""
    asked = {"database": "shop", "limit": LIMIT, "tables": ["users"], "delta": 1e-6, "label": None}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with begin_run(path, **asked) as ledger:
        ledger.charge(users(0.25), what={})
        monkeypatch.setattr(os, "fsync", full)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-5])  # the line was torn
    (run,) = read(path).databases["shop"].reserved
    with begin_run(path, **asked) as ledger:
        assert list(read(path).databases["shop"].reserved) == [ledger.run] != [run]


def test_a_run_without_its_mark_holds_on_until_it_is_released(path: Path) -> None:
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    whole = rho_of_epsilon(1.0, delta=1e-6)
    lost = begin(path, limit=Budget(whole))
    lost.charge(users(whole / 4), what={})
    asked = {"database": "shop", "limit": Budget(whole / 2), "tables": ["users"], "delta": 1e-6, "label": None}
    with pytest.raises(BudgetError, match="with 1 run not ended"), begin_run(path, **asked):
        pass
    release(path, database="shop", run=lost.run)
    with begin_run(path, **asked):
        pass
    assert read(path).databases["shop"].total == users(whole / 4)


def test_a_ledger_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mistyped" / "ledger.jsonl"
    with pytest.raises(LedgerError, match=r"there is no folder .*mistyped; make it"):
        begin(path)
    asked = {"database": "shop", "limit": LIMIT, "tables": ["users"], "delta": 1e-6, "label": None}
    with pytest.raises(LedgerError, match="there is no folder"), begin_run(path, **asked):
        pass
    assert not path.parent.exists()


def test_a_stuck_lock_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = begin(path)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with FileLock(f"{path}.lock"):
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.2)
    try:
        with pytest.raises(LedgerError, match=r"held its lock for 0\.2 s; wait for it"):
            ledger.charge(users(0.1), what={})
    finally:
        release.set()
        thread.join()
    ledger.charge(users(0.1), what={})


# Durability


def test_a_charge_is_synced_before_it_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    honest = os.fsync

    def fsync(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size if stat.S_ISREG(os.fstat(descriptor).st_mode) else -1)
        honest(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    ledger = begin(path)
    assert sizes == [-1, path.stat().st_size]  # the folder once, then the line
    ledger.charge(users(0.1), what={})
    assert sizes[2:] == [path.stat().st_size]


def test_a_failed_sync_is_an_error_and_counts_as_spent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = begin(path)

    def fsync(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(LedgerError, match="No space left on device"):
        ledger.charge(users(0.75), what={})
    monkeypatch.undo()
    with pytest.raises(BudgetError, match=r"but rho 0\.25 and"):
        ledger.charge(users(0.5), what={})
    assert ledger.spent == users(0.75)


def test_a_torn_last_line_is_skipped_by_readers_and_removed_by_writers(path: Path) -> None:
    ledger = begin(path)
    ledger.charge(users(0.25), what={})
    whole = path.read_bytes()
    ledger.charge(users(0.5), what={})
    line = path.read_bytes()[len(whole) :]
    for cut in range(len(line)):
        path.write_bytes(whole + line[:cut])
        assert read(path).databases["shop"].total == users(0.25)
        assert path.read_bytes() == whole + line[:cut]  # readers write nothing
        if cut % 20 == 1:
            begin(path).charge(users(0.125), what={})
            assert path.read_bytes().startswith(whole)
            assert read(path).databases["shop"].total == users(0.375)


def test_a_torn_line_longer_than_the_next_one_leaves_nothing_behind(path: Path) -> None:
    ledger = begin(path)
    whole = path.read_bytes()
    ledger.charge(users(0.5), what={"long": "x" * 5000})
    path.write_bytes(path.read_bytes()[:-1])
    begin(path)
    added = path.read_bytes()[len(whole) :]
    assert added.count(b"\n") == 1
    assert added.endswith(b"\n")


def test_a_tail_of_zeros_from_a_power_cut_is_torn_too(path: Path) -> None:
    begin(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n": 2, ' + b"\0" * 100)
    begin(path)
    assert path.read_bytes().startswith(whole)
    assert len(read(path).databases["shop"].entries) == 2


# Distrust


def filled(path: Path) -> list[bytes]:
    ledger = begin(path)
    for i in range(5):
        ledger.charge(users(0.1), what={"i": i})
    return path.read_bytes().splitlines(keepends=True)


def refused(path: Path, line: int | None = None) -> None:
    before = path.read_bytes()
    message = rf"ledger .*ledger\.jsonl cannot be used: line {line or '[0-9]+'} .*; restore it from a copy"
    with pytest.raises(LedgerError, match=message):
        read(path)
    with pytest.raises(LedgerError, match=message):
        begin(path)
    with pytest.raises(LedgerError, match=message):
        set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    assert path.read_bytes() == before


def test_an_edited_line_is_found(path: Path) -> None:
    lines = filled(path)
    lines[2] = lines[2].replace(b'"users": 0.1', b'"users": 0.0')
    path.write_bytes(b"".join(lines))
    refused(path, 4)  # the first line whose chain no longer fits


@pytest.mark.parametrize("change", ["delete", "swap", "repeat", "blank", "cut"])
def test_lines_out_of_order_are_found(path: Path, change: str) -> None:
    lines = filled(path)
    changed = {
        "delete": [*lines[:2], *lines[3:]],
        "swap": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "repeat": [*lines[:3], *lines[2:]],
        "blank": [*lines[:2], b"\n", *lines[2:]],
        "cut": [*lines[:2], lines[2][:40], *lines[3:]],
    }[change]
    path.write_bytes(b"".join(changed))
    refused(path, 4 if change == "repeat" else 3)


def test_every_changed_byte_before_the_last_line_is_found(path: Path) -> None:
    lines = filled(path)
    data = bytearray(b"".join(lines))
    choose = random.Random(0)
    for position in choose.sample(range(len(data) - len(lines[-1])), 150):
        old = data[position]
        data[position] = choose.choice([b for b in range(256) if b != old])
        path.write_bytes(data)
        with pytest.raises(LedgerError, match="cannot be used: line"):
            read(path)
        data[position] = old


def replaced(line: bytes, **changes: object) -> bytes:
    return (json.dumps(json.loads(line) | changes) + "\n").encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 7},
        {"n": "6"},
        {"chain": "0" * 64},
        {"kind": "refund"},
        {"kind": "cap"},
        {"kind": None},
        {"run": 5},
        {"database": None},
        {"label": None},
        {"time": 0},
        {"rho": {"users": -0.1}},
        {"rho": {"users": math.nan}},
        {"rho": {"users": math.inf}},
        {"rho": {"users": 10**400}},
        {"rho": {"users": "0.1"}},
        {"rho": {"users": True}},
        {"rho": {"users": [0.1]}},
        {"rho": [0.1]},
        {"rho": None},
        {"delta": {"users": -1}},
        {"delta": 0.1},
        {"what": "x"},
        {"what": None},
        {"extra": 1},
    ],
    ids=str,
)
def test_wrong_types_are_found_even_in_the_last_line(path: Path, changes: dict[str, object]) -> None:
    lines = filled(path)
    path.write_bytes(b"".join(lines[:-1]) + replaced(lines[-1], **changes))
    refused(path, 6)


@pytest.mark.parametrize("what", [{}, {"epsilon": 1.0}, {"epsilon": -1.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 1}])
def test_a_broken_cap_is_found(path: Path, what: dict[str, object]) -> None:
    begin(path)
    set_cap(path, database="shop", epsilon=1.0, delta=1e-6)
    first, cap = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + replaced(cap, what=what))
    refused(path, 2)


def test_missing_field_and_deep_nesting_are_found(path: Path) -> None:
    lines = filled(path)
    short = {k: v for k, v in json.loads(lines[-1]).items() if k != "what"}
    path.write_bytes(b"".join(lines[:-1]) + (json.dumps(short) + "\n").encode())
    refused(path, 6)
    header = lines[-1][: lines[-1].index(b'"time"')]
    path.write_bytes(b"".join(lines[:-1]) + header + b'"what": ' + b"[" * 100_000 + b"\n")
    refused(path, 6)


@pytest.mark.parametrize(
    "content", [b"\x00\x01DUCK\xff" * 50, b"hello", b"hello\n", b"[]\n", b"\xff\xfe\n", b'{"n": 2']
)
def test_a_file_of_another_kind_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path, 1)


def test_an_empty_file_is_an_empty_ledger(path: Path) -> None:
    path.touch()
    assert read(path).databases == {}
    begin(path)
    assert len(read(path).databases["shop"].entries) == 1


def test_an_open_run_notices_that_lines_are_gone(path: Path) -> None:
    ledger = begin(path)
    ledger.charge(users(0.1), what={})
    lines = path.read_bytes().splitlines(keepends=True)
    for content in (lines[0], b"", lines[0] + lines[1][:20], lines[1] + lines[0]):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="already read from it are gone; restore it from a copy"):
            ledger.charge(users(0.1), what={})
        assert path.read_bytes() == content
    path.unlink()
    with pytest.raises(LedgerError, match="No such file"):
        ledger.charge(users(0.1), what={})
    assert not path.exists()


def test_unusable_paths(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"cannot be used: No such file or directory; name a file that can be read"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "file").touch()
    for bad, why in ((tmp_path / "folder", "Is a directory"), (tmp_path / "file" / "x", "Not a directory")):
        if bad.name == "folder":
            bad.mkdir()
        with pytest.raises(LedgerError, match=why):
            read(bad)
        with pytest.raises(LedgerError, match="cannot be used"):
            begin(bad)
        with pytest.raises(LedgerError, match="cannot be used"):
            set_cap(bad, database="shop", epsilon=1.0, delta=1e-6)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(path: Path) -> None:
    begin(path)
    path.chmod(0o400)
    with pytest.raises(LedgerError, match="Permission denied"):
        begin(path)
    path.chmod(0o000)
    with pytest.raises(LedgerError, match="Permission denied"):
        read(path)


def test_no_permission_as_the_system_reports_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(path)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(LedgerError, match="Permission denied; name a file that can be written"):
        begin(path)


def test_memory_ledgers_are_apart() -> None:
    one, two = begin(None), begin(None)
    one.charge(users(1.0), what={})
    two.charge(users(1.0), what={})
    assert len(one.entries) == 2


@pytest.mark.parametrize("remains", [0.0, 1e-18, 1e-13, 1e-9, 1e-4, 0.02])
@pytest.mark.parametrize("delta", [1e-7, 1e-6, 0.5])
def test_what_a_cap_leaves_can_be_asked_for_and_no_more(remains: float, delta: float) -> None:
    cap = Cap(1.0, 1e-6)
    most = cap.left(Cost.zero(), "users").rho
    summary = DatabaseSummary(Cost({"users": subtract(most, remains)}, {}), cap, ())
    for spent_delta in (0.0, 3e-8):
        left = summary.affordable(["users"], delta=delta, spent_delta=spent_delta)
        if left:
            rho = rho_of_epsilon(left, delta=subtract(delta, spent_delta))
            assert cap.allows(summary.total + Cost({"users": rho}, {"users": spent_delta}), "users")
    assert summary.affordable(["users"], delta=delta, elsewhere=most) == 0.0
    assert DatabaseSummary(summary.total, None, ()).affordable(["users"], delta=delta) == math.inf


def test_a_run_that_goes_on_has_spent_what_it_has_spent(path: Path) -> None:
    set_cap(path, database="shop", epsilon=epsilon_of_rho(1.5, delta=1e-6) + 1e-9, delta=3e-6)
    first = begin(path)
    first.charge(users(0.75), what={})
    release(path, database="shop", run=first.run)  # it died
    other = Ledger.open(path, database="shop", limit=Budget(0.5), tables=("users", "movies"))
    with pytest.raises(BudgetError, match="under the cap"):  # others have reserved what it would need
        Ledger.open(path, database="shop", limit=Budget(1.25, 1e-6), tables=("users", "movies"), run=first.run)
    other.close()
    again = Ledger.open(path, database="shop", limit=LIMIT, tables=("users", "movies"), run=first.run)
    assert again.spent == users(0.75)
    assert read(path).databases["shop"].reserved == {
        first.run: Cost({"users": 1.0, "movies": 1.0}, dict.fromkeys(("users", "movies"), 1e-6))
    }
    with pytest.raises(BudgetError, match="in this run"):
        again.charge(users(0.26), what={})
    again.charge(users(0.25), what={})
    assert read(path).databases["shop"].total == users(1.0)
