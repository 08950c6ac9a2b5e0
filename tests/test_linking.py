"""dw.link: every kind of relation on tables from anywhere, and what it refuses before anything is spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.errors import DpweaveError
from dpweave.privacy.accounting import rho_of_epsilon


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
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(changes: dict[str, Any], says: str, tmp_path: Any) -> None:
    book = tmp_path / "ledger.jsonl"
    with pytest.raises(DpweaveError, match=says) as caught:
        learn(ledger=book, **changes)
    assert "charge" not in (book.read_text() if book.exists() else "")
    assert "\n" not in str(caught.value)
