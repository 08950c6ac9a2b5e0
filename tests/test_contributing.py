"""What contributors are told is true: paths, checks, versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import installed

ROOT = Path(__file__).parent.parent
PATH = re.compile(r"`((?:src|tests|docs)/[\w./-]+)`")
PATTERN = re.compile(r"NAME|COMMAND")
"""Stands for what a contributor adds."""


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_paths_are_there(page):
    named = PATH.findall((ROOT / page).read_text())
    assert named
    for path in named:
        whole = ROOT / path
        assert whole.parent.is_dir() if PATTERN.search(path) else whole.exists(), path


def test_hooks_before_a_commit_are_the_checks_of_make_lint():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    assert [h["entry"] for h in repository["hooks"]] == checks


def test_the_citation_names_this_version_and_this_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


def test_the_workflow_runs_every_version_that_is_supported():
    flow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    job = flow["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"][0] == oldest
    assert {"run": "make test"} in job["steps"]


def test_the_workflow_installs_both_packages_with_the_lowest_and_the_newest_dependencies():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    matrix = jobs["install"]["strategy"]["matrix"]
    assert matrix["python"] == jobs["test"]["strategy"]["matrix"]["python"]
    assert sorted(matrix["kind"]) == sorted(installed.KINDS)
    assert sorted(matrix["resolution"]) == sorted(installed.RESOLUTIONS)
    (command,) = [s["run"] for s in jobs["install"]["steps"] if "tests.installed" in s.get("run", "")]
    assert all(f"--{name} ${{{{ matrix.{name} }}}}" in command for name in matrix)


def test_every_dependency_says_its_lowest_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    assert [d for d in named if ">=" not in d] == []


def test_the_image_holds_what_the_wheel_needs_and_runs_the_command_as_nobody_special():
    lines = [s for s in (ROOT / "Dockerfile").read_text().splitlines() if s and not s.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    copied = {word for s in lines if s.startswith("COPY ") and "--from" not in s for word in s.split()[1:-1]}
    assert {project["readme"], *project["license-files"], "pyproject.toml", "src"} == copied
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    users = [s.split()[1] for s in lines if s.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', "\n".join(lines), re.MULTILINE)
    assert entry in project["scripts"]
    for extras in re.findall(r"\[(\w+(?:,\w+)*)\]", "\n".join(s for s in lines if s.startswith("RUN "))):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
