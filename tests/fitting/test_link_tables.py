"""dw.link: every kind of relation on tables from anywhere, and what it refuses before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.errors import DpweaveError, UsageError
from dpweave.privacy.accounting import rho_of_epsilon
from dpweave.privacy.noise import InsecureNoise

if TYPE_CHECKING:
    from pathlib import Path


def tables(rows: int = 300, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """People and things, where people of a colour own things of that colour."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame(
        {"person": np.arange(rows), "colour": rng.choice(["red", "blue"], rows), "age": rng.integers(0, 4, rows)}
    )
    things = pd.DataFrame(
        {"thing": np.arange(rows), "paint": rng.choice(["red", "blue"], rows), "size": rng.integers(0, 3, rows)}
    )
    same = {c: things.thing[things.paint == c].to_numpy() for c in ("red", "blue")}
    links = {(p, int(rng.choice(same[c]))) for p, c in zip(people.person, people.colour, strict=True) for _ in range(3)}
    return people, things, pd.DataFrame(sorted(links), columns=["person", "thing"])


def learn(**changes: Any) -> dw.Links:
    people, things, pairs = tables()
    given: dict[str, Any] = {
        "left": people,
        "right": things,
        "pairs": pairs,
        "left_key": "person",
        "right_key": "thing",
        "synthetic_left": people,
        "synthetic_right": things,
        "max_degree": 12,
        "k": 2,
        "epsilon": 20.0,
        "delta": 1e-5,
        "method": "map",
    }
    given |= changes
    return dw.link(given.pop("left"), given.pop("right"), given.pop("pairs"), **given)


def agreement(links: dw.Links, people: pd.DataFrame, things: pd.DataFrame) -> float:
    found = links.pairs.to_pandas()
    return float((people.colour.to_numpy()[found.left] == things.paint.to_numpy()[found.right]).mean())


@pytest.mark.parametrize("method", ["map", dw.PGD(T=2, K=2, k=2, slices=None)])
@pytest.mark.parametrize("neighbours", ["record", "entity"])
def test_a_strong_correlation_is_learned(method: object, neighbours: str) -> None:
    people, things, _ = tables()
    links = learn(method=method, neighbours=neighbours)
    assert agreement(links, people, things) > 0.85
    assert agreement(learn(method="random"), people, things) < 0.65
    assert not links.pairs.to_pandas().duplicated().any()
    assert links.certificate.epsilon <= 20.0


def test_the_certificate_is_the_whole_rho_and_no_more() -> None:
    links = learn(method=dw.PGD(T=2, K=2, k=2, slices=None), epsilon=2.0)
    rho = rho_of_epsilon(2.0, delta=1e-5)
    assert links.certificate.rho == pytest.approx(rho, rel=1e-12)
    assert links.certificate.rho <= rho
    assert {g.table for g in links.certificate.tables} == {"left", "right"}


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_the_budget_of_the_theorem(alpha: float) -> None:
    """`thm::DP_guarantee`: with eps0² = 2 rho / (K T) the K T choices and measurements
    cost rho, whole and part by part.
    """
    degree, rounds, each = 12, 2, 2
    links = learn(method=dw.PGD(T=rounds, K=each, k=2, alpha=alpha, slices=None), epsilon=2.0, max_degree=degree)
    rho = rho_of_epsilon(2.0, delta=1e-5)
    count, *rest = links.certificate.events
    assert count["rho"]["left"] == pytest.approx(0.05 * rho, abs=1e-12)
    eps0_squared = 2 * (rho - count["rho"]["left"]) / (each * rounds)
    assert sum(e["rho"]["left"] for e in rest) == pytest.approx(each * rounds * eps0_squared / 2, abs=1e-12)
    for event in rest:
        share = alpha if event["verb"] == "select" else 1 - alpha
        assert event["rho"]["left"] == pytest.approx(each * share * eps0_squared / 2, rel=1e-7)
        for sigma in event.get("sigma", ()):  # `alg::Gaussian` on counts
            assert sigma == pytest.approx(np.sqrt(2) * degree / np.sqrt((1 - alpha) * eps0_squared), rel=1e-6)
    assert [e["verb"] for e in rest] == (["select", "measure"] if alpha else ["measure"]) * rounds
    assert links.certificate.rho == pytest.approx(rho, abs=1e-12)
    assert links.certificate.rho <= rho


def test_what_the_promise_does_not_count_is_said() -> None:
    plain = learn(method="random").certificate
    assert len(plain.caveats) == 3
    assert "comes on top" in plain.caveats[0]
    assert "age, colour, paint, size were read off the synthetic tables" in plain.caveats[1]
    assert "the guarantees add up" in plain.caveats[2]
    given = learn(method="random", m_syn=50, domains={"colour": ["blue", "red"]}).certificate
    assert "age, paint, size were read" in given.caveats[1]
    assert "domains of colour were declared" in given.caveats[2]
    assert "m_syn = 50, was given" in given.caveats[3]
    assert "note: The number of synthetic links" in str(given)
    assert "relative to the database after links" in learn(method="random", on_excess="truncate").certificate.statement


def test_a_column_is_named_that_is_called_as_the_key_of_the_other_side() -> None:
    things = tables()[1].assign(person=0)
    said = learn(method="random", right=things, synthetic_right=things).certificate.caveats[1]
    assert "age, colour, paint, person, size were read" in said


@pytest.mark.parametrize("column", ["colour", "age"])
def test_real_rows_that_are_all_null_are_no_reason_to_refuse(column: str) -> None:
    people = tables()[0].assign(**{column: None})
    assert learn(left=people).certificate.epsilon <= 20.0


KINDS = [(kind, own) for kind in ("many-to-many", "one-to-many", "one-to-one") for own in (False, True)]


@pytest.mark.parametrize(("kind", "own"), KINDS)
def test_the_papers_method_keeps_every_kind(kind: str, own: bool) -> None:
    """Two tables or one with itself; more synthetic rows than real ones; workloads over 4 columns."""
    people, things, pairs = tables(rows=60)
    right_key = "friend" if own else "thing"
    pairs = pairs.rename(columns={"thing": right_key})
    pairs = pairs[pairs.person != pairs[right_key]] if own else pairs
    if kind != "many-to-many":
        pairs = pairs.drop_duplicates("person")
    if kind == "one-to-one":
        pairs = pairs.drop_duplicates(right_key)
    left = pd.concat([people, people.head(25)])
    found = dw.link(
        people, people if own else things, pairs, left_key="person", right_key=right_key, kind=kind,
        synthetic_left=left, synthetic_right=left if own else things.head(40), max_degree=20, k=4, epsilon=50.0,
        delta=1e-5, method=dw.PGD(T=1, K=1, k=4, slices=2, slice_rows=30, iterations=5),
    ).pairs.to_pandas()  # fmt: skip
    assert len(found)
    assert not found.duplicated().any()
    assert found.left.between(0, 84).all()
    assert found.right.between(0, 84 if own else 39).all()
    if kind == "one-to-many":
        assert sorted(found.left) == list(range(85))
    if kind == "one-to-one":
        assert found.left.is_unique
        assert found.right.is_unique
    if own:
        assert (found.left != found.right).all()


def test_one_to_many_gives_every_child_one_parent() -> None:
    people, things, pairs = tables(rows=2000)
    children = pairs.drop_duplicates("person")
    links = learn(
        left=people,
        right=things,
        pairs=children,
        synthetic_left=people,
        synthetic_right=things,
        kind="one-to-many",
        max_degree=10,
    )
    found = links.pairs.to_pandas()
    assert sorted(found.left) == list(range(len(people)))
    assert agreement(links, people, things) > 0.85


def test_one_to_one_is_a_matching() -> None:
    _, _, pairs = tables()
    single = pairs.drop_duplicates("person").drop_duplicates("thing")
    found = learn(pairs=single, kind="one-to-one").pairs.to_pandas()
    assert found.left.is_unique
    assert found.right.is_unique
    assert len(found) == pytest.approx(len(single), rel=0.2)


@pytest.mark.parametrize("kind", ["many-to-many", "one-to-many"])
def test_self_reference_has_no_loops(kind: str) -> None:
    people, _, _ = tables()
    rng = np.random.default_rng(5)
    friends = pd.DataFrame(
        {"person": people.person, "friend": (people.person + rng.integers(1, 9, len(people))) % len(people)}
    )
    links = dw.link(
        people, people, friends, left_key="person", right_key="friend", synthetic_left=people, synthetic_right=people,
        kind=kind, max_degree=12, k=2, epsilon=20.0, delta=1e-5, on_excess="truncate",
    )  # fmt: skip
    found = links.pairs.to_pandas()
    assert len(found)
    assert (found.left != found.right).all()


def test_other_sizes_scale_the_number_of_links() -> None:
    people, things, pairs = tables()
    twice = learn(synthetic_left=pd.concat([people] * 2), synthetic_right=pd.concat([things] * 2))
    assert twice.pairs.num_rows == pytest.approx(2 * len(pairs), rel=0.2)
    assert learn(m_syn=123).pairs.num_rows == 123


@pytest.mark.parametrize("kind", ["many-to-many", "one-to-many"])
def test_who_is_gone_is_no_reason_to_refuse_where_that_is_hidden(kind: str) -> None:
    _, things, pairs = tables()
    pairs = pairs if kind == "many-to-many" else pairs.drop_duplicates("person")
    assert (pairs.thing == things.thing[0]).any()
    found = learn(pairs=pairs, kind=kind, right=things.iloc[1:], neighbours="entity")
    assert found.certificate.neighbours == "entity"


def test_the_type_that_a_missing_number_gives_a_frame_is_not_released() -> None:
    people, _, _ = tables()
    one_missing = people.assign(age=people.age.where(people.person > 0))
    assert one_missing.age.dtype != people.age.dtype
    domains = [{str(d) for q in learn(left=left).release.measured for d in q.domains} for left in (people, one_missing)]
    assert domains[0] == domains[1]


people_, things_, pairs_ = tables()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pairs": pairs_.assign(thing=pairs_.thing + 10_000)}, "that are not there"),
        ({"pairs": pd.concat([pairs_, pairs_])}, "share the same person, thing"),
        ({"max_degree": 2}, "more than max_degree = 2"),
        ({"synthetic_left": people_.rename(columns={"age": "years"})}, "must have the same columns"),
        ({"domains": {"colour": ["red"]}}, "does not list"),
        ({"m_syn": 10**6}, "do not fit"),
        ({"k": 9}, "k = 9 is larger than the number of columns"),
        ({"method": dw.PGD(T=9, K=9, k=2)}, "K T = 9"),
        ({"method": "pdg"}, "did you mean 'pgd'"),
        ({"kind": "many-to-few"}, "no kind of relation"),
        ({"left_key": "persn"}, "did you mean 'person'"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"delta": 0.0}, "delta is 0"),
        ({"pairs": pairs_, "kind": "one-to-many"}, "more than once"),
        ({"pairs": pairs_.drop_duplicates("person"), "kind": "one-to-one"}, "more than max_degree = 1"),
        ({"pairs": pairs_.assign(thing=pairs_.thing.astype(str))}, "compares 'thing' of type text"),
        ({"left": pd.concat([people_, people_])}, "share the same person"),
        ({"synthetic_left": people_.assign(age=people_.age.astype(str))}, "'age' is int64 in left and text in synth"),
        ({"domains": {"color": ["red", "blue"]}}, "did you mean 'colour'"),
        ({"domains": {"person": [1, 2]}}, "no column to declare for 'person'"),
        ({"m_syn": 3.5}, "m_syn must be a whole number of at least 0, not 3.5"),
        ({"m_syn": -1}, "m_syn must be a whole number"),
        ({"m_syn": 299, "kind": "one-to-many", "pairs": pairs_.drop_duplicates("person")}, "exactly one"),
        ({"seed": "now"}, "seed must be a whole number"),
        ({"method": 5}, "method is 5; give a name or a link model"),
        ({"max_degree": 0}, "at least 1, not 0"),
        ({"k": 1}, "k must be a whole number of at least 2"),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(changes: dict[str, Any], says: str, tmp_path: Any) -> None:
    book = tmp_path / "ledger.jsonl"
    with pytest.raises(DpweaveError, match=says) as caught:
        learn(ledger=book, **changes)
    assert "charge" not in (book.read_text() if book.exists() else "")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["map", dw.PGD(T=2, K=2, k=2, alpha=0.2, slices=None)])
def test_a_call_that_was_cut_off_goes_on_and_ends_as_if_nothing_had_happened(method: object, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    asked: dict[str, Any] = {"method": method, "insecure_seed": 3, "max_degree": 2, "on_excess": "truncate"}
    whole = learn(**asked, ledger=tmp_path / "whole.jsonl")
    charges = (tmp_path / "whole.jsonl").read_text().count('"charge"')

    def cut_off(step: str, share: float) -> None:
        if step == "learn links" and share >= 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(**asked, ledger=ledger, progress=cut_off)
    (kept,) = tmp_path.glob("*.answers")
    with pytest.raises(UsageError, match="belong to another epsilon"):
        learn(**asked, ledger=ledger, resume=True, epsilon=21.0)
    people, _, _ = tables(seed=1)
    with pytest.raises(UsageError, match="belong to another set of synthetic rows"):
        learn(**asked, ledger=ledger, resume=True, synthetic_left=people)
    assert kept.exists()
    resumed = learn(**asked, ledger=ledger, resume=True)
    assert resumed.pairs.equals(whole.pairs)
    assert resumed.certificate.rho == whole.certificate.rho
    assert ledger.read_text().count('"charge"') == charges
    assert {p.name for p in tmp_path.iterdir()} == {f"{n}.jsonl{s}" for n in ("ledger", "whole") for s in ("", ".lock")}


def test_what_was_charged_and_not_answered_is_charged_again_and_said(tmp_path: Path, monkeypatch: Any) -> None:
    ledger, asked = tmp_path / "ledger.jsonl", {"method": "map", "insecure_seed": 3}
    with monkeypatch.context() as patched:
        patched.setattr(InsecureNoise, "discrete_gaussian", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn(**asked, ledger=ledger)
    resumed = learn(**asked, ledger=ledger, resume=True)
    assert resumed.pairs.equals(learn(**asked).pairs)
    assert any(c.startswith("charged twice") for c in resumed.certificate.caveats)
    assert len(resumed.certificate.events) == ledger.read_text().count('"charge"')


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
