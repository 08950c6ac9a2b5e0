"""What the page can do, one method for each. Every answer is plain values; an error of our own tree is a sentence."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any

from dpweave import chosen
from dpweave.engines.opening import open_source
from dpweave.errors import UsageError
from dpweave.explain.check_plan import check_plan
from dpweave.explain.draft_notes import draft_text
from dpweave.explain.explain_plan import explain
from dpweave.studio import plan_edits
from dpweave.studio.outlook import help_offered, outlook, promise_words
from dpweave.studio.plan_edits import Edit
from dpweave.studio.plan_file import PlanFile, stamp
from dpweave.studio.plan_view import plan_view
from dpweave.studio.steps import Runner, Step, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpweave.plan.explanation import Explanation
    from dpweave.plan.plan import Plan

COPIES = {"sqlite": "copy.sqlite", "duckdb": "copy.duckdb", "csv": "copy.csv", "parquet": "copy"}
"""Forms of a copy that the page offers, with the end of its name: a file, or a folder of files."""


class Workbench:
    """One source, one plan, one person."""

    def __init__(self, source: str, plan: Path, *, ledger: Path, shown_source: str) -> None:
        self._source, self._shown_source, self._ledger = source, shown_source, ledger
        with open_source(source) as opened:
            self._database, self._untyped = opened.name, sorted(opened.untyped)
        self._file = PlanFile.open(plan) if plan.exists() else PlanFile(plan, draft_text(source)[1], disk=None)
        self._runner = Runner(Path.cwd())
        self._lock = RLock()
        self._explaining = RLock()
        self._wanted: tuple[Plan, float, float] | None = None
        self._explained: tuple[tuple[Plan, float, float], Explanation] | None = None
        self._checked: tuple[Plan, list[dict[str, str]]] | None = None

    def close(self) -> None:
        """Stop what runs."""
        self._runner.close()

    # -- the plan ------------------------------------------------------------------------------------------------------

    def state(self, _: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the plan as it stands, and how it stands to its file."""
        with self._lock:
            conflict = self._file.look()
            undo, redo = self._file.undoable
            news, self._file.news = self._file.news, ""
            path = str(self._file.path)
            return {
                "source": self._shown_source,
                "path": path,
                "plan": plan_view(self._file.plan),
                "untyped": self._untyped,
                "text": self._file.text,
                "saved": self._file.is_saved and conflict is None,
                "exists": self._file.disk is not None,
                "pristine": self._file.is_pristine,
                "conflict": conflict is not None,
                "disk": stamp(self._file.disk if conflict is None else conflict or None),
                "difference": self._file.difference(),
                "undo": undo,
                "redo": redo,
                "news": news,
                "commands": self._plan_commands(path),
                "limits": {"useful": chosen.USEFUL, "coarse": chosen.COARSE},
            }

    def _plan_commands(self, path: str) -> dict[str, str]:
        plan = self._file.plan
        who = [w for t in plan.protect for w in ("--protect", t)] + [w for t in plan.public for w in ("--public", t)]
        return {
            "schema": shown(["draft", self._shown_source, "-o", path, *who]),
            "columns": shown(["check", path, self._shown_source]),
        }

    def edit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Change the plan; refused whole if the result is none."""
        with self._lock:
            self._free()
            edits = asked.get("edits")
            if not isinstance(edits, list):
                raise UsageError("an edit needs a list of changes")
            self._file.edit([Edit.of(e, self._file.plan) for e in edits])
            return self.state()

    def role(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Make a table protected, public or owned. A draft that nobody has touched is drafted again, comments too."""
        with self._lock:
            self._free()
            plan = self._file.plan
            protect, public = plan_edits.require_role(plan, str(asked.get("table")), str(asked.get("role")))
            if not protect:
                raise UsageError("Somebody has to be protected. Protect another table first.")
            if self._file.is_pristine:
                drafted, text = draft_text(self._source, protect=protect, public=public)
                if set(drafted.protect) == set(protect):
                    self._file.redraft(text)
                    return self.state()
            self._file.edit(plan_edits.role_edits(plan, protect, public))
            return self.state()

    def key(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Give a foreign key another role, and drop what means nothing beside it."""
        from dataclasses import replace

        with self._lock:
            self._free()
            table = self._file.plan.table.get(str(asked.get("table")))
            key = None if table is None else table.key.get(str(asked.get("key")))
            role = asked.get("role")
            if table is None or key is None or role not in plan_edits.BY_ROLE:
                raise UsageError("the plan has no such foreign key, or keys have no such role")
            edits = plan_edits.key_edits(
                replace(key, role=role, max_degree=key.max_degree or chosen.DEFAULT_DEGREE), key, table.name
            )
            if role == "owning":
                for other in table.keys:
                    if other.role == "owning" and other is not key:
                        edits += plan_edits.key_edits(replace(other, role="shared"), other, table.name)
            self._file.edit(edits)
            return self.state()

    def undo(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Take the last change back."""
        with self._lock:
            self._free()
            self._file.undo()
            return self.state()

    def redo(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Make it again."""
        with self._lock:
            self._free()
            self._file.redo()
            return self.state()

    def save(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Write the plan, over the very text that the person was shown."""
        with self._lock:
            self._file.save(seen=str(asked.get("disk", "")))
            return self.state()

    def take_disk(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Show what is on disk instead of what is here; undo goes back."""
        with self._lock:
            self._free()
            self._file.take_disk()
            return self.state()

    def _free(self) -> None:
        """Refuse changes while a fit goes on by the plan as it was saved."""
        running = self._runner.running
        if running is not None and running.name == "fit":
            raise UsageError("A fit is running by this plan. Wait for it, or cancel it, before you change the plan.")

    # -- what it means -------------------------------------------------------------------------------------------------

    def outlook(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the promise and the verdict predicted, at an epsilon and a delta."""
        epsilon, delta = _number(asked, "epsilon"), _number(asked, "delta")
        plan, found = self._explain(epsilon, delta)
        if found is None:
            return {"stale": True}
        path = str(self._file.path)
        Thread(target=self._prepare, daemon=True).start()
        return outlook(plan, found) | {
            "command": shown(["explain", path, "--epsilon", f"{epsilon:g}", "--delta", f"{delta:g}"]),
        }

    def _prepare(self) -> None:
        """Be ready for the next change, while the person looks at what the last one means."""
        with self._lock:
            self._file.prepare()

    def helpful(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return changes that would help most; none once something newer was asked, which should not have to wait."""
        plan, found = self._explain(_number(asked, "epsilon"), _number(asked, "delta"))
        wanted = self._wanted
        if found is None:
            return {"stale": True}
        offers = help_offered(plan, found, until=lambda: self._wanted is not wanted or self._file.plan is not plan)
        return {"stale": True} if self._file.plan is not plan else {"offers": offers}

    def promise(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the promise in words at an epsilon; at once, however large the plan is."""
        return promise_words(self._file.plan, epsilon=_number(asked, "epsilon"))

    def _explain(self, epsilon: float, delta: float) -> tuple[Plan, Explanation | None]:
        """Explain the plan as it stands, one question at a time. Of several that wait only the last is answered."""
        asked = self._wanted = (self._file.plan, epsilon, delta)
        with self._explaining:
            plan = asked[0]
            known = self._explained
            if known is None or known[0][0] is not plan or known[0][1:] != asked[1:]:
                if self._wanted is not asked:
                    return plan, None
                known = self._explained = (asked, explain(plan, epsilon=epsilon, delta=delta, enough=False))
            return plan, known[1]

    def check(self, _: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Hold the plan against the catalogue; reads no row."""
        plan = self._file.plan
        if self._checked is None or self._checked[0] is not plan:
            found = check_plan(plan, self._source)
            self._checked = (plan, [{"severity": f.severity, "where": f.where, "text": f.text} for f in found])
        return {"findings": self._checked[1]}

    # -- running -------------------------------------------------------------------------------------------------------

    def ledger(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was spent on this database, and what may still be asked for under its cap."""
        from dpweave.budget.spending import read

        delta = _number(asked, "delta")
        command = shown(["ledger", str(self._ledger)])
        plan = self._file.plan
        limit = shown(["ledger", str(self._ledger), "--database", self._database, "--cap-epsilon", "3"])
        nothing: dict[str, Any] = {
            "file": str(self._ledger),
            "command": command,
            "cap_command": limit,
            "spent": [],
            "runs": 0,
            "cap": None,
            "left": None,
        }
        found = read(self._ledger).databases.get(self._database) if self._ledger.exists() else None
        if found is None:
            return nothing
        spent = [
            {"table": t, "epsilon": found.epsilon(t, delta=delta)}
            for t in sorted(found.total.rho)
            if found.total.delta.get(t, 0.0) < delta
        ]
        cap = None if found.cap is None else {"epsilon": found.cap.epsilon, "delta": found.cap.delta}
        left = None if found.cap is None else found.affordable(plan.protect, delta=delta)
        return nothing | {"spent": spent, "runs": len(found.runs), "cap": cap, "left": left}

    def steps(self, _: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return how every step stands, and the commands that come next."""
        return {"steps": {name: step.view() for name, step in self._runner.last.items()}}

    def planned_fit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the command that a fit would run, before anybody confirms it."""
        return {"command": self._fit(asked).command}

    def fit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Spend the budget, once it was confirmed, by the plan that is on disk."""
        with self._lock:
            if asked.get("confirmed") is not True:
                raise UsageError("Spending has to be confirmed.")
            if self._file.look() is not None or not self._file.is_saved:
                raise UsageError("Save the plan first: a fit reads it from the file.")
            for name in ("sample", "report"):
                self._runner.last.pop(name, None)
            self._runner.start(self._fit(asked))
            return self.steps()

    def _fit(self, asked: Mapping[str, Any]) -> Step:
        epsilon, delta = _number(asked, "epsilon"), _number(asked, "delta")
        plan = self._file.path
        model = _free_name(plan.parent, plan.stem, ".dpw")
        rest = [
            "--plan",
            str(plan),
            "--epsilon",
            f"{epsilon:g}",
            "--delta",
            f"{delta:g}",
            "--out",
            str(model),
            "--ledger",
            str(self._ledger),
            *(["--resume"] if asked.get("resume") is True else []),
        ]
        command = shown(["fit", self._shown_source, *rest])
        return Step("fit", ("fit", self._source, *rest, "--json"), command, {"model": model})

    def sample(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Draw a copy from the model that was fitted here; free."""
        with self._lock:
            model = self._made("fit", "model")
            form = str(asked.get("form", "sqlite"))
            if form not in COPIES:
                raise UsageError(f"a copy is one of {', '.join(COPIES)}, not {form!r}")
            stem, suffix = Path(COPIES[form]).stem, Path(COPIES[form]).suffix
            copy = _free_name(model.parent, f"{model.stem}-{stem}", suffix)
            words = ["sample", str(model), "--out", str(copy)]
            words += ["--scale", f"{_number(asked, 'scale', 1.0):g}", "--seed", str(int(_number(asked, "seed", 0)))]
            workers = int(_number(asked, "workers", 1))
            words += ["--workers", str(workers)] if workers != 1 else []
            self._runner.last.pop("report", None)
            self._runner.start(Step("sample", (*words, "--json"), shown(words), {"copy": copy}))
            return self.steps()

    def report(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Write the report on the copy that was drawn here."""
        with self._lock:
            model, copy = self._made("fit", "model"), self._made("sample", "copy")
            page = _free_name(copy.parent, f"{copy.stem}-report", ".html")
            words = ["report", str(model), str(copy), "--out", str(page)]
            self._runner.start(Step("report", (*words, "--json"), shown(words), {"report": page}))
            return self.steps()

    def cancel(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Stop what runs, as Ctrl-C does."""
        self._runner.cancel()
        return self.steps()

    def _made(self, name: str, kind: str) -> Path:
        step = self._runner.last.get(name)
        if step is None or step.state != "done":
            raise UsageError(f"There is no {kind} yet; {name} comes first.")
        return step.files[kind]

    def file(self, kind: str) -> tuple[Path, bytes | None]:
        """Return a file that a step has made, for download; the certificate comes out of the model's step."""
        if kind == "certificate":
            step = self._runner.last.get("fit")
            if step is None or "certificate" not in step.result:
                raise UsageError("There is no certificate yet; fit comes first.")
            return Path("certificate.json"), json.dumps(step.result["certificate"], indent=2).encode()
        name = {"model": "fit", "copy": "sample", "report": "report"}.get(kind)
        if name is None:
            raise UsageError("the studio has no such file")
        return self._made(name, kind), None


def methods(bench: Workbench) -> dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Return what the page may ask for, by name."""
    names = (
        *("state", "edit", "role", "key", "undo", "redo", "save", "take_disk"),
        *("promise", "outlook", "helpful", "check", "ledger"),
        *("steps", "planned_fit", "fit", "sample", "report", "cancel"),
    )
    return {name: getattr(bench, name) for name in names}


def _number(asked: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} must be a number")
    return float(value)


def _free_name(folder: Path, stem: str, suffix: str) -> Path:
    """Name an output that is not there yet: what was made before is never written over."""
    for i in count(1):
        path = folder / (f"{stem}{suffix}" if i == 1 else f"{stem}-{i}{suffix}")
        if not path.exists():
            return path
    raise AssertionError
