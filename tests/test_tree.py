"""The tree of the package: rooms of a size that can be seen at once, names that mean
one thing, imports without circles.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import dpweave

SOURCES = Path(dpweave.__file__).parent
MOST_MODULES = 14
MOST_AT_THE_TOP = 6
TOP = {"chosen.py", "errors.py", "progress.py"}
"""Modules at the top that the map leads to."""
ENGINE_PARTS = {"catalogue", "connection", "types", "source", "sink"}
"""Engines' folders have these; those of servers a connection."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(text: str, known: dict[str, Path]) -> set[str]:
    """Modules that a text imports anywhere: at the top, for types alone, or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            assert node.module is not None
            found |= {f if (f := f"{node.module}.{a.name}") in known else node.module for a in node.names}
    return found & known.keys()


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            place = stack.index(v)
            if len(stack) - place > 1:
                found.append(set(stack[place:]))
            del stack[place:]

    for v in graph:
        if v not in index:
            visit(v)
    return found


def test_no_module_imports_itself_by_way_of_others():
    known = modules()
    assert len(known) > 100
    assert len(known) < sys.getrecursionlimit() / 2
    graph = {name: imports(path.read_text(encoding="utf-8"), known) - {name} for name, path in known.items()}
    assert circles(graph) == []


def test_circles_are_found_whatever_kind_of_import_closes_them():
    known = dict.fromkeys(("a", "b", "c", "d"), SOURCES)
    texts = {
        "a": "import b",
        "b": "if TYPE_CHECKING:\n    from c import X",
        "c": "def f():\n    from a import Y",
        "d": "import a",
    }
    graph = {name: imports(text, known) for name, text in texts.items()}
    assert circles(graph) == [{"a", "b", "c"}]


def test_rooms_can_be_seen_at_once():
    for folder in {path.parent for path in modules().values()}:
        most = MOST_AT_THE_TOP if folder == SOURCES else MOST_MODULES
        assert len(list(folder.glob("*.py"))) <= most, folder


def test_no_two_modules_have_one_name():
    names = Counter(path.stem for path in modules().values() if path.stem not in {"__init__", *ENGINE_PARTS})
    assert [name for name, times in names.items() if times > 1] == []


def test_every_room_says_what_lives_in_it():
    for path in modules().values():
        if path.name == "__init__.py" and path.parent != SOURCES:
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            assert text, path
            assert all(f"``{p.stem}``" in text for p in path.parent.glob("*.py") if not p.stem.startswith("__")), path


def test_the_map_leads_to_files_that_are_there():
    text = (SOURCES.parents[1] / "docs" / "map.md").read_text(encoding="utf-8")
    changes = [line for line in text.splitlines() if line.startswith("| ") and "I want" not in line]
    assert len(changes) >= 20
    for line in changes:
        places = re.findall(r"`([\w/]+(?:/|\.py|\.md))`", line)
        for place in places:
            if "/" in place or place in TOP:
                assert (SOURCES / place).exists() or (SOURCES.parents[1] / place).exists(), place
        assert any("/" in place or place in TOP for place in places), line
