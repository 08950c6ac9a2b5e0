"""Install the package as its users do, in empty environments, and run it: ``python -m tests.installed``.

It builds the source distribution and from that the wheel, and installs each with the newest and with the lowest
dependencies that ``pyproject.toml`` allows. Each installation must show its help and run the demo from a folder that
knows nothing of the repository. Needs ``uv`` and the net; nothing is written outside a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESOLUTIONS = ("highest", "lowest-direct")
KINDS = ("wheel", "sdist")
EXTRAS = "postgres,mysql,fake"
"""Extras that are small; the lowest versions of these are tried too."""
TRIED = """
import json, sys
import faker, ibis.backends.postgres, psycopg, pymysql
import dpweave as dw
made = dw.load(sys.argv[1]).sample(seed=1)
print(json.dumps({"rows": sum(t.num_rows for t in made.values()), "path": dw.__file__}))
"""


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command with nothing of this project in its environment."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "VIRTUAL_ENV"}
    done = subprocess.run([str(w) for w in words], cwd=cwd, env=clean, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def spent_by_children() -> float:
    """CPU seconds of the commands that have ended: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def built(folder: Path) -> dict[str, Path]:
    """Build both distributions; the wheel comes out of the source distribution."""
    run("uv", "build", "--quiet", "--out-dir", folder, ROOT, cwd=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def tried(package: Path, *, python: str, resolution: str, folder: Path) -> dict[str, object]:
    """Install a distribution, and use it."""
    place = folder / f"{package.suffix[1:]}-{python}-{resolution}"
    run("uv", "venv", "--quiet", "--python", python, place, cwd=folder)
    binaries = place / "bin"
    target = ("uv", "pip", "install", "--quiet", "--python", binaries / "python", "--resolution", resolution)
    # Named here, dependencies are direct ones for every uv; of a package alone some take the newest all the same.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["dependencies"]
    run(*target, package, *named, cwd=folder)
    size = sum(p.stat().st_size for p in place.rglob("*") if p.is_file() and not p.is_symlink())
    work = place / "work"
    work.mkdir()
    times = []
    for _ in range(3):
        began = spent_by_children()
        assert "Usage: dpweave" in run(binaries / "dpweave", "--help", cwd=work)
        times.append(spent_by_children() - began)
    demo = json.loads(run(binaries / "dpweave", "demo", "--json", cwd=work))
    more = [d for extra in EXTRAS.split(",") for d in project["optional-dependencies"][extra]]
    run(*target, f"{package}[{EXTRAS}]", *named, *more, cwd=folder)
    made = json.loads(run(binaries / "python", "-c", TRIED, next(work.rglob("*.dpw")), cwd=work))
    assert made["rows"] > 100
    assert str(place) in made["path"]
    versions = json.loads(run("uv", "pip", "list", "--format", "json", "--python", binaries / "python", cwd=folder))
    return {
        "megabytes": round(size / 1e6),
        "help_cpu_seconds": round(min(times), 2),
        "demo": sorted(demo),
        "versions": {v["name"]: v["version"] for v in versions},
    }


def main() -> None:
    """Try what was asked for, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="+", default=[f"{sys.version_info.major}.{sys.version_info.minor}"])
    parser.add_argument("--resolution", nargs="+", choices=RESOLUTIONS, default=RESOLUTIONS)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = built(folder)
        for kind in asked.kind:
            for python in asked.python:
                for resolution in asked.resolution:
                    found = tried(packages[kind], python=python, resolution=resolution, folder=folder)
                    print(json.dumps({"kind": kind, "python": python, "resolution": resolution, **found}), flush=True)


if __name__ == "__main__":
    main()
