"""Comparison of a compiled program with its loops: values, gradients, updates, and refusals.

Compiled values are float32, those of the loops float64. A second run of the loops with perturbed
values estimates the rounding error, so that results close to a tie are skipped.
"""

from __future__ import annotations

import linecache
import traceback
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import timerl_nb as trl
from tests.independent import given, loops
from tests.independent.loops import Loops, Problem, Table, direction
from tests.independent.programs import Gradient, Merge, Parameter, Program, Step

NOISE = 1e-6
STEP = 1e-5


@dataclass(frozen=True)
class Verdict:
    """Outcome of a program.

    Attributes:
        kind: "agreed", "refused" (as expected), "limit" (a documented refusal), or the kind of
        disagreement: "values",
            "gradient", "update", "refusal", "accepted", "crash".
        what: The evidence.
        skipped: Numbers not compared, with the reason.
    """

    kind: str
    what: str = ""
    skipped: tuple[str, ...] = ()
    gradients: int = 0

    @property
    def fine(self) -> bool:
        return self.kind in ("agreed", "refused", "limit")


class Disagreement(Exception):
    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind, self.what = kind, what


@dataclass
class Trial:
    """Comparison of one program."""

    program: Program
    given: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    gradients: int = 0

    # --- the loops -------------------------------------------------------------------------------

    def loops(self, length: int | None = None, **variation: Any) -> tuple[Loops, dict[str, Any]]:
        run = Loops(self.given, **variation)
        scope = {**vars(given), **vars(loops), "np": np, "loops": run}
        text = self.program.plain(length)
        exec(compile(text, "<loops>", "exec"), scope)
        return run, scope

    def problems(self) -> dict[str, str]:
        """Return the required refusals, by error.

        Merges are needed at all points. Statements under a dynamic bound must be valid for every
        length.
        """
        found: dict[str, str] = {}
        names = self.program.names
        dynamic = (
            range(1, self.program.bounds[self.program.ending] + 1) if self.program.until else ()
        )
        for length in (None, *dynamic):
            try:
                run, _ = self.loops(length)
            except Problem as problem:  # statements that a dynamic bound needs
                found.setdefault(problem.refusal, f"{type(problem).__name__} {problem}")
                continue
            for name in sorted(self.program.needed()):
                table = run.tables.get(name)
                if table is None:
                    continue
                if name not in self.program.outputs and not _is_merge(names[name]):
                    continue
                for point in table.points():
                    try:
                        table[point]
                    except Problem as problem:
                        found.setdefault(problem.refusal, f"{type(problem).__name__} {problem}")
                if isinstance(table, loops.Merge):
                    for point, owners in table.owned().items():
                        if len(owners) != 1:
                            found.setdefault("BranchError", f"{name}{list(point)}: {len(owners)}")
        return found

    # --- the compiled program --------------------------------------------------------------------

    def compiled(self) -> Any:
        text = self.program.code()
        file = f"<program {id(self)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, file, "exec"), scope)
        return scope["result"]

    # --- comparison ------------------------------------------------------------------------------

    def values(self, result: Any) -> None:
        names = self.program.names
        plain = [
            n
            for n in self.program.outputs
            if n in names and not isinstance(names[n], Gradient | Step | Parameter)
        ]
        base, scope = self.loops()
        if self.program.until:
            size = self.program.ending.upper()
            self.same(f"length {size}", np.asarray(scope[size]), result.lengths[size])
        others = [self.loops(noise=NOISE, seed=k)[0] for k in (1, 2)]
        for name in plain:
            tables = [run.tables[name] for run in (base, *others)]
            points = list(tables[0].points())
            got = self.listed(result, name, tables[0], points)
            for point, value in zip(points, got, strict=True):
                wanted, *near = (np.asarray(table[point]) for table in tables)
                self.close(f"{name}{list(point)}", wanted, near, value)

    def listed(self, result: Any, name: str, table: Table, points: list[Any]) -> list[Any]:
        """Return the compiled program's results, point by point."""
        array = result[name]
        if table.where is None:
            return [array[point] for point in points]
        coordinates = result.coordinates[name]
        dims = self.program.names[name].dims
        at = [tuple(int(coordinates[d][k]) for d in dims) for k in range(len(array))]
        if at != points:
            raise Disagreement("values", f"{name} is defined at {at}, not at {points}")
        return list(array)

    def same(self, what: str, wanted: Any, got: Any) -> None:
        if not np.array_equal(wanted, got):
            raise Disagreement("values", f"{what} is {got}, not {wanted}")

    def close(self, what: str, wanted: Any, near: list[Any], got: Any) -> None:
        if wanted.shape != np.shape(got):
            raise Disagreement("values", f"{what} has shape {np.shape(got)}, not {wanted.shape}")
        if wanted.dtype.kind != "f":
            sure = np.all([wanted == one for one in near], axis=0)
            if not np.all(sure):
                self.skipped.append("a near tie")
            wrong = sure & (wanted != got)
        else:
            off = np.max([np.abs(wanted - one) for one in near], axis=0)
            scale = np.max(np.abs(wanted), initial=1.0)
            allowed = 1e-5 * scale + 2e-5 * np.abs(wanted) + 15 * off
            unsure = ~np.isfinite(wanted)
            if np.any(unsure):
                self.skipped.append("not finite")
            if np.any(allowed > 0.05 * scale):
                self.skipped.append("ill-conditioned")
            wrong = ~unsure & ~(np.abs(wanted - got) <= allowed)
        if np.any(wrong):
            raise Disagreement("values", f"{what} is\n{got}\nnot\n{wanted}")

    # --- gradients -------------------------------------------------------------------------------

    def derivatives(self, result: Any) -> None:
        for statement in self.program.statements:
            if statement.name not in self.program.outputs:
                continue
            if isinstance(statement, Gradient):
                self.gradient(result, statement.name, statement.loss, statement.leaf)
            if isinstance(statement, Step):
                self.gradient(result, statement.name, statement.loss, statement.parameter)
                self.update(result, statement)

    def gradient(self, result: Any, name: str, loss: str, leaf: str) -> None:
        """Return the directional derivative along a direction, and at a single point."""
        base, _ = self.loops()
        table = base.tables[leaf]
        points = list(table.points())
        got = self.listed(result, name, table, points)
        shape = self.program.names[leaf].shape
        for seed in (1, 2):
            ways = [direction(leaf, point, shape, seed) for point in points]
            said = sum(float(np.sum(g * way)) for g, way in zip(got, ways, strict=True))
            scale = sum(float(np.sum(np.abs(g))) for g in got)
            slopes: list[float] = []
            kept: list[dict[Any, Any]] = []
            for noise in (0.0, NOISE, NOISE):
                run, total = self.total(loss, noise=noise, seed=seed + len(slopes))
                kept = [run.kept]
                found = self.slope(loss, leaf, total, kept[0], noise, seed, seed + len(slopes))
                if found is None:
                    self.skipped.append("a kink")
                    return
                slopes.append(found)
            off = max(abs(slopes[0] - other) for other in slopes[1:])
            allowed = 1e-4 + 1e-3 * scale + 15 * off
            if not np.isfinite(slopes[0]):
                self.skipped.append("not finite")
                return
            if allowed > 0.05 * max(1.0, scale):
                self.skipped.append("ill-conditioned")
            self.gradients += 1
            if not abs(slopes[0] - said) <= allowed:
                raise Disagreement(
                    "gradient",
                    f"{name}, of {loss} with respect to {leaf}, says {said:.6g} along a direction; "
                    f"finite differences say {slopes[0]:.6g} (± {allowed:.2g})",
                )

    def total(self, loss: str, **variation: Any) -> tuple[Loops, float]:
        run, _ = self.loops(**variation)
        table = run.tables[loss]
        return run, sum(float(np.sum(table[point])) for point in table.points())

    def slope(
        self, loss: str, leaf: str, at: float, held: Any, noise: float, way: int, seed: int
    ) -> float | None:
        """Return the numeric derivative along a direction; None if it is not smooth."""
        jumps: list[float] = []
        slope = 0.0
        for step in (10 * STEP, STEP):
            ends = [
                self.total(
                    loss, noise=noise, moved={leaf: sign * step}, way=way, held=held, seed=seed
                )[1]
                for sign in (1, -1)
            ]
            jumps.append(abs(ends[0] - 2 * at + ends[1]) / step)
            slope = (ends[0] - ends[1]) / (2 * step)
        if jumps[1] > 0.3 * jumps[0] + 1e-5 * (1 + abs(slope)):
            return None
        return slope

    def update(self, result: Any, step: Step) -> None:
        """Apply the optimiser's rule to the returned gradients."""
        if not step.optimizer:
            return
        p = np.asarray(result[step.parameter], float)
        g = np.asarray(result[step.name], float)
        after = np.asarray(result[f"{step.name}_next"], float)
        axis = len(step.dims) - 1
        p, g, after = (np.moveaxis(x, axis, 0) for x in (p, g, after))
        options = eval(f"dict{step.optimizer[step.optimizer.index('(') :]}")
        lr, momentum = options["lr"], options.get("momentum", 0.0)
        m = np.zeros(p.shape[1:])
        v = np.zeros(p.shape[1:])
        for k in range(len(p)):
            if step.optimizer.startswith("SGD"):
                m = momentum * m + g[k]
                wanted = p[k] - lr * m
            else:
                m = 0.9 * m + 0.1 * g[k]
                v = 0.999 * v + 0.001 * g[k] ** 2
                first, second = m / (1 - 0.9 ** (k + 1)), v / (1 - 0.999 ** (k + 1))
                wanted = p[k] - lr * first / (np.sqrt(second) + 1e-8)
            small = np.abs(g[k]) < 1e-6  # Adam divides by a number that may be a rounding error
            near = np.isclose(after[k], wanted, rtol=1e-4, atol=1e-4 * (1 + np.abs(g[k])))
            if not np.all(near | (small & step.optimizer.startswith("Adam"))):
                raise Disagreement(
                    "update", f"{step.parameter}[{k}] becomes {after[k]}, not {wanted}"
                )
            if k + 1 < len(p) and not np.allclose(p[k + 1], after[k], rtol=1e-6, atol=1e-7):
                raise Disagreement(
                    "update", f"{step.parameter}[{k + 1}] is {p[k + 1]}, not {after[k]}"
                )

    # --- the verdict -----------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        try:
            problems = self.problems()
        except Exception:
            return Verdict("crash", "the loops:\n" + traceback.format_exc())
        try:
            result = self.compiled()
        except trl.errors.TimeRLError as error:
            word = type(error).__name__
            said = f"{word}: {error}"
            if word in problems or (word == "CeilingError" and "ScheduleError" in problems):
                return Verdict("refused", said)
            limit = documented(error)
            if limit:
                return Verdict("limit", limit)
            wanted = f"\nwanted: {problems}" if problems else ""
            return Verdict("refusal", said + wanted)
        except Exception:
            return Verdict("crash", traceback.format_exc())
        if problems:
            return Verdict("accepted", f"wanted: {problems}")
        self.given = {name: result[name] for name in self.program.outputs}
        try:
            self.values(result)
            self.derivatives(result)
        except Disagreement as found:
            return Verdict(found.kind, found.what, tuple(self.skipped))
        except Exception:
            return Verdict("crash", "the loops:\n" + traceback.format_exc())
        return Verdict("agreed", "", tuple(self.skipped), self.gradients)


def _is_merge(statement: Any) -> bool:
    return isinstance(statement, Merge)


# Documented refusals of meaningful programs: class, words, and reason.
LIMITS: tuple[tuple[str, str, str], ...] = (
    ("GradientError", "is defined through slices of itself", "a recurrence through whole slices"),
    ("GradientError", "of an indexed tensor", "the gradient of an indexed tensor"),
    ("ScheduleError", "none that is affine in the indices", "no affine order"),
    ("BudgetError", "", "a budget that does not suffice"),
    ("ReadError", "of an empty set at", "a reduction of what a dynamic bound may leave nothing of"),
)


def documented(error: Exception) -> str:
    for word, text, why in LIMITS:
        if type(error).__name__ == word and text in str(error):
            return why
    return ""


def tried(program: Program) -> Verdict:
    """Return the verdict on a program."""
    with np.errstate(all="ignore"):
        return Trial(program).verdict()
