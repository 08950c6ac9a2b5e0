"""The plan stays a person's file: comments and order kept, undo, nothing written over unseen."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from dpweave.errors import DpweaveError, PlanError, UsageError
from dpweave.plan.plan import Plan
from dpweave.studio.plan_edits import Edit, require_role, role_edits
from dpweave.studio.plan_file import PlanFile, stamp

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
# Written by hand; keep me.
protect = ["patients"]  # people

public = ["wards"]  # known to all

[tables.wards]
primary_key = ["id"]
[tables.wards.columns]
id = { type = "int64", nullable = false, domain = "key" }
name = { type = "text", nullable = false, domain = "learn" }

# The heart of it.
[tables.patients]  # one row each
primary_key = ["id"]
rows = 300  # about
[tables.patients.columns]
id = { type = "int64", nullable = false, domain = "key" }
age = { type = "int64", nullable = false, domain = "learn" }  # ask Dr. Who
sex = { type = "text", nullable = false, domain = ["f", "m"] } # as printed

[tables.visits]
primary_key = ["id"]
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
patient = { type = "int64", nullable = false, domain = "key" }
ward = { type = "int64", nullable = false, domain = "key" }
came = { type = "date", nullable = false, domain = "learn" }
[tables.visits.keys.patient]  # whose
columns = ["patient"]
references = "patients"
target = ["id"]
role = "owning"
max_degree = 7  # the ethics board said so
[tables.visits.keys.ward]
columns = ["ward"]
references = "wards"
target = ["id"]
role = "attribute"
# the end
"""
COMMENTS = [line[line.index("#") :] for line in TEXT.splitlines() if "#" in line]


@pytest.fixture
def file(tmp_path: Path) -> PlanFile:
    (tmp_path / "plan.toml").write_text(TEXT)
    return PlanFile.open(tmp_path / "plan.toml")


def edit(file: PlanFile, *path: str | int, value: object) -> None:
    file.edit([Edit.of({"path": list(path), "value": value}, file.plan)])


def keeps_comments(text: str) -> bool:
    at = 0
    for comment in COMMENTS:  # every one, in order
        at = text.find(comment, at)
        if at < 0:
            return False
        at += len(comment)
    return True


def test_a_change_touches_nothing_but_its_place(file):
    edit(file, "tables", "patients", "columns", "age", "domain", value={"low": 0, "high": 99, "bins": 10})
    changed = [pair for pair in zip(TEXT.splitlines(), file.text.splitlines(), strict=True) if pair[0] != pair[1]]
    assert changed == [
        (
            'age = { type = "int64", nullable = false, domain = "learn" }  # ask Dr. Who',
            'age = { type = "int64", nullable = false, domain = { low = 0, high = 99, bins = 10 } }  # ask Dr. Who',
        )
    ]


def test_many_changes_by_hand_and_here_in_turn_lose_no_comment(file):
    edit(file, "tables", "patients", "rows", value=400)
    edit(file, "tables", "visits", "rows", value=900)
    edit(file, "workloads", "new", value={"columns": ["patients.age", "visits.came"]})
    file.save(seen=stamp(TEXT))
    by_hand = file.path.read_text().replace("rows = 400", "# counted by hand\nrows = 410")
    file.path.write_text(by_hand)
    assert file.look() is None
    assert file.plan.table["patients"].rows == 410
    assert "read again" in file.news
    edit(file, "tables", "visits", "keys", "patient", "max_degree", value=3)
    edit(
        file,
        "tables",
        "visits",
        "columns",
        "came",
        "domain",
        value={"low": "2025-01-01", "high": "2025-12-31", "bins": 12},
    )
    edit(file, "constraints", "new", value={"table": "patients", "columns": ["sex"], "dependent": "age"})
    edit(file, "workloads", 0, value=None)
    file.edit(role_edits(file.plan, *require_role(file.plan, "wards", "protected")))
    file.edit(role_edits(file.plan, *require_role(file.plan, "wards", "public")))
    file.save(seen=stamp(by_hand))
    saved = file.path.read_text()
    assert keeps_comments(saved)
    assert "# counted by hand" in saved
    plan = Plan.load(file.path)
    assert plan.table["visits"].column["came"].domain.edges[0] == dt.date(2025, 1, 1)
    assert plan.table["visits"].key["patient"].max_degree == 3
    assert plan.table["visits"].key["patient"].role == "owning"
    assert plan.workloads == ()
    assert len(plan.constraints) == 1


def test_a_change_that_is_no_plan_is_refused_whole(file):
    before = file.text
    with pytest.raises(PlanError, match="max_degree"):
        file.edit(
            [
                Edit(("tables", "patients", "rows"), 5),
                Edit(("tables", "visits", "keys", "patient", "max_degree"), 0),
            ]
        )
    with pytest.raises(DpweaveError):
        edit(file, "tables", "nobody", "columns", "x", "domain", value="learn")
    with pytest.raises(PlanError, match="unknown key"):
        edit(file, "surprise", value=1)
    with pytest.raises(PlanError, match="is no date"):
        edit(file, "tables", "visits", "columns", "came", "domain", value={"low": "soon", "high": "later"})
    assert file.text == before
    assert file.undoable == (0, 0)
    edit(file, "tables", "patients", "rows", value=5)  # and the next one is whole
    assert file.text == TEXT.replace("rows = 300", "rows = 5")


def test_changes_can_be_undone_and_made_again(file):
    edit(file, "tables", "patients", "rows", value=5)
    edit(file, "tables", "patients", "rows", value=None)
    assert file.plan.table["patients"].rows is None
    file.undo()
    assert file.plan.table["patients"].rows == 5
    file.undo()
    assert (file.text, file.undoable) == (TEXT, (0, 2))
    file.redo()
    file.redo()
    assert file.plan.table["patients"].rows is None
    file.undo()
    edit(file, "tables", "patients", "rows", value=7)
    assert file.undoable == (2, 0)


def test_what_somebody_else_wrote_is_not_written_over_unseen(file):
    edit(file, "tables", "patients", "rows", value=5)
    theirs = TEXT.replace("rows = 300", "rows = 299")
    file.path.write_text(theirs)
    assert file.look() == theirs
    with pytest.raises(UsageError, match="changed on disk meanwhile"):
        file.save(seen=stamp(TEXT))
    assert file.path.read_text() == theirs
    assert [x for x in file.difference() if x[0] in "+-"] == ["-rows = 299  # about", "+rows = 5  # about"]
    file.take_disk()
    assert file.plan.table["patients"].rows == 299
    file.undo()
    assert file.plan.table["patients"].rows == 5
    file.save(seen=stamp(theirs))  # seen, and chosen
    assert file.path.read_text() == TEXT.replace("rows = 300", "rows = 5")


def test_a_file_that_is_no_plan_any_more_or_is_gone_is_said_and_not_taken(file):
    file.path.write_text("protect = [")
    assert file.look() == "protect = ["
    assert file.text == TEXT
    with pytest.raises(PlanError, match="not valid TOML"):
        file.take_disk()
    file.path.unlink()
    assert file.look() == ""
    with pytest.raises(UsageError, match="no file"):
        file.take_disk()
    file.save(seen="")
    assert file.path.read_text() == TEXT


def test_roles_move_keys_that_must_move_and_no_others(file):
    file.edit(role_edits(file.plan, *require_role(file.plan, "wards", "protected")))
    keys = file.plan.table["visits"].key
    assert (keys["patient"].role, keys["patient"].max_degree) == ("owning", 7)
    assert (keys["ward"].role, keys["ward"].max_degree) == ("shared", 10)
    edit(file, "tables", "visits", "keys", "ward", "role", value="linking")
    file.edit(role_edits(file.plan, *require_role(file.plan, "visits", "protected")))
    assert {k.role for k in file.plan.table["visits"].keys} == {"linking"}
    with pytest.raises(PlanError, match="neither protected nor public"):
        file.edit(role_edits(file.plan, *require_role(file.plan, "patients", "owned")))


def test_what_a_draft_said_of_a_price_goes_with_the_domain_and_what_a_person_said_stays(tmp_path: Path):
    drafted = TEXT.replace(
        'name = { type = "text", nullable = false, domain = "learn" }',
        'name = { type = "text", nullable = false, domain = "learn" }  # costs epsilon and delta; a value needs 9 rows',
    )
    file = PlanFile(tmp_path / "plan.toml", drafted, disk=None)
    file.edit([Edit(("tables", "wards", "columns", "name", "nullable"), None)])
    assert "needs 9 rows" in file.text
    file.edit([Edit(("tables", "wards", "columns", "name", "domain"), ["a", "b"])])
    file.edit([Edit(("tables", "patients", "columns", "age", "domain"), {"low": 0, "high": 99, "bins": 5})])
    assert "needs 9 rows" not in file.text
    assert keeps_comments(file.text)
    file.undo()
    file.undo()
    assert "needs 9 rows" in file.text
