"""The code that pages print, and a place to run it in as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DONE_ALREADY = ("make demo", "dpweave demo")
"""Commands that whoever runs a page has run before: they take longest."""


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Return the blocks of code of a page in these languages, in order: language and text."""
    return [(m[1], m[2]) for m in FENCE.finditer(page.read_text()) if m[1] in languages]


def reader(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a reader: ``dpweave`` and ``python3`` are commands, put into ``folder``."""
    folder.mkdir(exist_ok=True)
    for name, arguments in {"dpweave": " -W error -m dpweave.cli", "python3": ""}.items():
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        command.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **(more or {})}


def run_page(page: Path, folder: Path, environment: Mapping[str, str]) -> None:
    """Run every block of a page in a folder: those of the shell one by one, those of Python together."""
    python = []
    for language, text in blocks(page, "sh", "python"):
        if language == "python":
            python.append(text)
        elif text.strip() not in DONE_ALREADY:
            run(["sh", "-e", "-c", text], folder, environment)
    if python:
        run([sys.executable, "-W", "error", "-c", "\n".join(python)], folder, environment)


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command that must succeed, and return what it printed."""
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, f"{command[-1]}\n{found.stderr}"
    return found.stdout
