"""Who gets what from the studio: its own browser everything, everybody else nothing; and never a row."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from dpweave.plan.plan import Plan
from dpweave.studio.outlook import guess_after
from dpweave.studio.server import studio
from dpweave.studio.workbench import Workbench, methods
from tests.studio.databases import SECRET, write_clinic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dpweave.studio.server import Studio


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studio")


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Studio]:
    source = write_clinic(place / "clinic.sqlite")
    with studio(str(source), place / "plan.toml", ledger=place / "ledger.jsonl") as server:
        yield server


def send(
    server: Studio, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    said = {"Host": f"127.0.0.1:{server.server_port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {k: v for k, v in said.items() if v})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.fixture(scope="module")
def cookie(served: Studio) -> str:
    """The token works once."""
    path = "/" + served.link.rpartition("/")[2]
    code, headers, page = send(served, "GET", path)
    assert code == 200
    assert b"dpweave studio" in page
    assert "HttpOnly; SameSite=Strict" in headers["set-cookie"]
    assert send(served, "GET", path)[0] == 403
    return headers["set-cookie"].partition(";")[0]


def post(server: Studio, cookie: str, name: str, body: object = None, **headers: str) -> tuple[int, Any]:
    usual = {"Origin": f"http://127.0.0.1:{server.server_port}", "Content_Type": "application/json", "Cookie": cookie}
    code, _, text = send(server, "POST", f"/api/{name}", {} if body is None else body, **(usual | headers))
    return code, json.loads(text)


def test_it_listens_on_this_machine_alone(served):
    assert served.server_address[0] == "127.0.0.1"
    others = {a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in {a for a in others if not a.startswith("127.")}:
        with pytest.raises(OSError), socket.create_connection((address, served.server_port), timeout=5):  # noqa: PT011
            pass


def test_its_own_page_gets_the_plan(served, cookie):
    code, state = post(served, cookie, "state")
    assert code == 200
    assert [t["name"] for t in state["plan"]["tables"]] == ["wards", "patients", "visits"]
    assert send(served, "GET", "/studio.js", Cookie=cookie)[0] == 200


@pytest.mark.parametrize("path", ["/", "/studio.js", "/studio.css", "/files/report", "/?token=wrong", "/?token="])
def test_without_the_cookie_nobody_gets_a_page(served, cookie, path):
    code, headers, text = send(served, "GET", path)
    assert code == 403
    assert "set-cookie" not in headers
    assert b"patients" not in text


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Cookie": ""}, "no cookie"),
        ({"Cookie": "dpweave-1=x"}, "another cookie"),
        ({"Host": "evil.example"}, "another host: DNS rebinding"),
        ({"Host": "127.0.0.1"}, "another port"),
        ({"Origin": "https://evil.example"}, "another site's page"),
        ({"Origin": "null"}, "a page of no site"),
        ({"Origin": "http://127.0.0.1:1"}, "another server on this machine"),
        ({"Origin": ""}, "no origin"),
        ({"Sec_Fetch_Site": "cross-site"}, "a page from elsewhere"),
        ({"Sec_Fetch_Site": "same-site"}, "another server on this machine"),
        ({"Content_Type": "text/plain"}, "what a form of another page could send"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_whoever_asks_from_elsewhere_is_refused(served, cookie, headers, why):
    for name in methods(served.bench):
        code, answer = post(served, cookie, name, **headers)
        assert code == 403, why
        assert list(answer) == ["error"]


def test_every_answer_forbids_the_page_to_ask_elsewhere(served, cookie):
    for path in ("/", "/studio.js", "/nothing", "/files/model"):
        headers = send(served, "GET", path, Cookie=cookie)[1]
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_what_is_wrong_is_said_in_a_sentence(served, cookie):
    assert post(served, cookie, "nothing") == (404, {"error": "The studio has nothing of that name."})
    assert list(post(served, cookie, "outlook", {"epsilon": -1, "delta": 1e-6})[1]) == ["error"]
    assert list(post(served, cookie, "outlook", {"epsilon": True, "delta": 1e-6})[1]) == ["error"]
    assert list(post(served, cookie, "role", {"table": "x", "role": "public"})[1]) == ["error"]
    assert list(post(served, cookie, "edit", {"edits": [{"path": "tables"}]})[1]) == ["error"]
    assert list(post(served, cookie, "edit", {"edits": 7})[1]) == ["error"]
    code, answer = post(served, cookie, "fit", {"epsilon": 1, "delta": 1e-6, "confirmed": True})
    assert (code, answer["error"][:14]) == (200, "Save the plan ")
    assert post(served, cookie, "fit", {"epsilon": 1, "delta": 1e-6})[1]["error"] == "Spending has to be confirmed."
    assert list(post(served, cookie, "sample")[1]) == ["error"]
    assert post(served, cookie, "state", [1])[0] == 404
    assert send(served, "GET", "/files/../plan.toml", Cookie=cookie)[0] == 404
    assert send(served, "PUT", "/api/state", {}, Cookie=cookie)[0] == 501


def test_nothing_that_it_sends_holds_a_row(served, cookie):
    """Whatever may be asked before a fit; after one it sends verdicts and certificates, which are released."""
    asked = {"epsilon": 1, "delta": 1e-6, "table": "patients", "role": "protected", "edits": []}
    for name in methods(served.bench):
        if name not in ("save", "fit", "cancel"):
            _, answer = post(served, cookie, name, asked)
            assert SECRET not in json.dumps(answer), name
            assert "eyes" not in json.dumps(answer), name


def test_it_foretells_what_explain_says(served, cookie):
    text = post(served, cookie, "state")[1]["text"]
    found = Plan.from_toml(text).explain(epsilon=0.7, delta=1e-7)
    _, said = post(served, cookie, "outlook", {"epsilon": 0.7, "delta": 1e-7})
    assert said["judged"] == json.loads(json.dumps(found.verdict.to_dict()["judged"]))
    assert said["statement"] == found.statement
    assert said["seconds"] == found.forecast.seconds
    assert said["guesses"][1] == {"before": 0.5, "after": guess_after(0.5, epsilon=0.7)}
    assert guess_after(0.1, epsilon=0.0) == pytest.approx(0.1)


def test_a_draft_that_nobody_touched_is_drafted_again_and_an_edited_one_is_not(served, cookie):
    state = post(served, cookie, "role", {"table": "wards", "role": "public"})[1]
    assert state["pristine"]
    assert state["plan"]["public"] == ["wards"]
    assert "# wards: public, copied as it is." in state["text"]
    assert state["commands"]["schema"].endswith("--protect patients --public wards")
    state = post(served, cookie, "edit", {"edits": [{"path": ["tables", "visits", "rows"], "value": 500}]})[1]
    state = post(served, cookie, "role", {"table": "wards", "role": "protected"})[1]
    assert not state["pristine"]
    assert "rows = 500" in state["text"]
    assert state["plan"]["units"]["wards"]["wards"] == 1
    state = post(served, cookie, "key", {"table": "visits", "key": "ward_id", "role": "owning"})[1]
    keys = {k["name"]: k["role"] for k in state["plan"]["tables"][2]["keys"]}
    assert keys == {"ward_id": "owning", "patient_id": "shared"}
    for _ in range(state["undo"]):
        state = post(served, cookie, "undo")[1]
    assert "rows = 500" not in state["text"]


def test_rows_of_one_owner_get_an_order_and_lose_it(served, cookie):
    def key() -> dict[str, Any]:
        state = post(served, cookie, "state")[1]
        return next(k for k in state["plan"]["tables"][2]["keys"] if k["name"] == "patient_id")

    path = ["tables", "visits", "keys", "patient_id", "order_by"]
    if key()["role"] != "owning":
        post(served, cookie, "key", {"table": "visits", "key": "patient_id", "role": "owning"})
    assert key()["orders"] == ["came", "nights"]  # a date and a number; not the keys
    for column in ("nights", "came", None):
        assert "error" not in post(served, cookie, "edit", {"edits": [{"path": path, "value": column}]})[1]
        assert key()["order_by"] == column
    for column in key()["orders"]:
        domain = ["tables", "visits", "columns", column, "domain"]
        assert "error" not in post(served, cookie, "edit", {"edits": [{"path": domain, "value": "opaque"}]})[1]
    assert key()["orders"] == []
    state = post(served, cookie, "state")[1]
    other = next(k for k in state["plan"]["tables"][2]["keys"] if k["name"] == "ward_id")
    assert other["orders"] == []
    assert list(post(served, cookie, "edit", {"edits": [{"path": path, "value": "came"}]})[1]) == ["error"]


def test_columns_of_files_without_types_get_types(tmp_path):
    folder = tmp_path / "clinic"
    folder.mkdir()
    (folder / "patients.csv").write_text("id,age,note\n1,40,a\n")
    bench = Workbench(str(folder), tmp_path / "plan.toml", ledger=tmp_path / "l.jsonl", shown_source="clinic")
    assert bench.state()["untyped"] == ["patients"]
    place = ["tables", "patients", "columns", "age"]
    bench.edit(
        {"edits": [{"path": [*place, "type"], "value": "int64"}, {"path": [*place, "domain"], "value": "learn"}]}
    )
    bench.edit({"edits": [{"path": [*place, "domain"], "value": {"low": 0, "high": 99, "bins": 10}}]})
    (age,) = (c for c in bench.state()["plan"]["tables"][0]["columns"] if c["name"] == "age")
    assert (age["type"], age["domain"]["form"]) == ("int64", "range")
    source = write_clinic(tmp_path / "clinic.sqlite")
    typed = Workbench(str(source), tmp_path / "other.toml", ledger=tmp_path / "l.jsonl", shown_source="clinic")
    assert typed.state()["untyped"] == []
