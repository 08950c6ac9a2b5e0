"""The readers of benchmarks/paper.py on tiny made-up files in the original formats."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="module")
def paper() -> ModuleType:
    file = Path(__file__).parents[2] / "benchmarks" / "paper.py"
    spec = importlib.util.spec_from_file_location("benchmarks_paper", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_grouplens_files(paper: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "users.dat").write_text("1::F::1::10::48067\n2::M::56::16::70072\n3::M::25::15::55117\n")
    (tmp_path / "movies.dat").write_bytes(
        "10::Les Misérables (1995)::Drama|Musical\r\n20::Heat (1995)::Action|Crime|Thriller\r\n".encode("latin-1")
    )
    (tmp_path / "ratings.dat").write_text("1::10::5::978300760\n2::10::3::978302109\n3::10::4::9\n3::20::4::9\n")
    data = paper.movielens_files(tmp_path, max_degree=2)
    left, right, shape, links = data.codes()
    assert len(left) == 3
    assert len(right) == 18
    assert shape["left.gender"] == 2
    assert data.right["is_musical"].to_pylist() == [1, 0]
    assert data.right["is_film_noir"].to_pylist() == [0, 0]
    # The third rating of the first movie is over the bound.
    assert links.tolist() == [[0, 0], [1, 0], [2, 1]]


DDI = """<?xml version="1.0" encoding="UTF-8"?>
<codeBook xmlns="ddi:codebook:2_5" version="2.5">
<stdyDscr><citation><titlStmt><titl>made up</titl></titlStmt><distStmt><distDate date="2024-01-01"/></distStmt>
<serStmt><serName abbr="usa">IPUMS USA</serName><serInfo>doi</serInfo></serStmt></citation><stdyInfo><sumDscr/><notes type="citation">x</notes></stdyInfo><dataAccs><useStmt><conditions>x</conditions>
<citReq>x</citReq></useStmt></dataAccs></stdyDscr>
<fileDscr ID="{stem}"><fileTxt><fileName>{stem}.dat</fileName><fileCont>people</fileCont><fileStrc type="rectangular"/>
<dimensns><caseQnty/></dimensns><fileType charset="UTF-8">ascii</fileType><format>fixed length fields</format>
<filePlac>IPUMS</filePlac></fileTxt></fileDscr>
<dataDscr>{variables}</dataDscr></codeBook>
"""  # noqa: E501
VARIABLE = """<var ID="{name}" name="{name}" dcml="0" files="{stem}" intrvl="discrete" vendor="ipums">
<location StartPos="{start}" EndPos="{end}" width="{width}"/><labl>{name}</labl><txt>{name}</txt>
<concept>x</concept><varFormat type="numeric" schema="other"/></var>"""


@pytest.mark.filterwarnings("ignore:Use of data from IPUMS")
def test_ipums_extract(paper: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("ipumspy", reason="the extra [ipums] is not installed")
    widths = {"SERIAL": 4, "PERNUM": 2, "MOMLOC": 2, "POPLOC": 2, "SEX": 1, "AGE": 3}
    people = [
        (1, 1, 0, 0, 1, 50),
        (1, 2, 0, 0, 2, 47),
        (1, 3, 2, 1, 2, 12),
        (2, 1, 0, 0, 2, 33),
        (2, 2, 1, 0, 1, 3),
        (3, 1, 0, 0, 1, 20),
    ]
    start, variables = 1, []
    for name, width in widths.items():
        variables.append(VARIABLE.format(name=name, stem="usa_00001", start=start, end=start + width - 1, width=width))
        start += width
    (tmp_path / "usa_00001.xml").write_text(DDI.format(stem="usa_00001", variables="".join(variables)))
    lines = ["".join(f"{x:0{w}d}" for x, w in zip(p, widths.values(), strict=True)) for p in people]
    (tmp_path / "usa_00001.dat").write_text("\n".join(lines) + "\n")
    data = paper.ipums(tmp_path / "usa_00001.dat", share=1.0, rows=10)
    assert data.selfish
    assert data.left.column_names == ["person", "sex", "age"]
    pairs = set(zip(data.pairs["person"].to_pylist(), data.pairs["parent"].to_pylist(), strict=True))
    assert pairs == {(2, 0), (2, 1), (4, 3)}


def test_a_run_on_a_made_up_database(paper: ModuleType, tmp_path: Path) -> None:
    """The whole way: tables, links through the Curator, score; real tables and real links would score 0."""
    rng = np.random.default_rng(0)
    users = [f"{i}::{'FM'[i % 2]}::{rng.choice([1, 18, 25])}::{rng.integers(3)}::0" for i in range(60)]
    movies = [f"{i}::x::{'Drama|War' if i % 3 else 'Comedy'}" for i in range(40)]
    flat = rng.choice(60 * 40, size=150, replace=False)
    ratings = [f"{i // 40}::{i % 40}::5::0" for i in np.sort(flat)]
    for name, lines in (("users", users), ("movies", movies), ("ratings", ratings)):
        (tmp_path / f"{name}.dat").write_text("\n".join(lines) + "\n")
    data = paper.movielens_files(tmp_path)
    left, right = paper.synthetic_tables(data, "real", seed=0)
    assert (left.num_rows, right.num_rows) == (60, 40)
    got = paper.one_run(data, left, right, paper.PGD(T=1, K=2, slices=1, slice_rows=20), epsilon=1.0, seed=0)
    assert 0 < got["mean"] <= got["max"] <= 200
    assert paper.score(data, data.left, data.right, paper.positions(data))["max"] == 0.0


def test_a_sample_of_the_real_links_is_what_perfect_learning_would_score(paper: ModuleType) -> None:
    people = {"person": list(range(90)), "sex": [i % 2 for i in range(90)], "age": [i % 3 for i in range(90)]}
    data = paper.person_data(people, [(i, i + 45) for i in range(45)], rows=30)
    got = paper.sample_run(data, seed=0)  # 15 of the 45 links
    assert 0 < got["mean"] <= got["max"] < 100
    assert got["mean"] == paper.sample_run(data, seed=0)["mean"] != paper.sample_run(data, seed=1)["mean"]


def test_tables_quote_the_runs(paper: ModuleType) -> None:
    done = {
        "movielens/random/aim/0/0": {"mean": 11.0, "max": 30.0},
        "movielens/text/aim/2/0": {"mean": 10.0, "max": 29.0},
        "movielens/text/aim/2/1": {"mean": 12.0, "max": 29.0},
        "movielens/script/aim/2/0": {"mean": 8.5, "max": 20.0},
        "movielens/script/mst/2/0": {"mean": 9.5, "max": 21.0},
        "movielens/T/mst/5/0": {"mean": 9.0, "max": 20.0},
    }
    text = paper.tables_text(done)
    assert "| error | 5 | 15 |" in text
    assert "| mean | 9.0 | 9.5 |" in text  # T = 15 is the script's own point
    assert "| max | 20.0 | 21.0 |" in text
    assert "| aim, authors' script |  |  |  | 8.5 |" in text
    assert "| aim, text |  |  |  | 11.0 ± 1.0 |" in text
    assert "| aim, random wiring | 11.0 | 11.0 |" in text
    assert "| *aim, the paper* | 18.1 | 15.3 |" in text


@pytest.mark.parametrize(("data", "slices"), [("movielens", 8), ("census", 3)])
def test_the_schedule_repeats_nothing_and_puts_what_matters_first(paper: ModuleType, data: str, slices: int) -> None:
    runs = sorted(paper.schedule(data, slices, 0), key=paper.stage)
    names = [one.name for one in runs]
    assert len(set(names)) == len(names)
    assert names[0].startswith(f"{data}/random/")
    assert names[-1].startswith(f"{data}/script/real/")
    for sweep in paper.SWEEPS[data]:
        own = getattr(paper.SCRIPTS[data], sweep)
        values = {getattr(one.method, sweep) for one in runs if one.sweep == sweep}
        assert values == set(paper.SWEEPS[data][sweep])
        assert own not in values  # that is the script's run at the sweeps' epsilon
        assert {one.epsilon for one in runs if one.sweep == sweep} == {paper.SWEEP_EPSILON[data]}
    assert f"{data}/script/mst/{paper.SWEEP_EPSILON[data]:g}/0" in names
