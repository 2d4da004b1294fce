"""The layers of ARCHITECTURE.md: no upward imports, no cycles, no deferred imports of our packages."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from docs.generate_map import PAGES, with_part

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "timerl_nb"


def layers() -> dict[str, tuple[int, int]]:
    """Return package or module -> (layer, position in the layer) from the table."""
    found: dict[str, tuple[int, int]] = {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        row = re.match(r"\| (\d+) \w+ \| (.*) \|$", line)
        if row:
            for place, name in enumerate(re.findall(r"`([\w/]+)`", row[2])):
                found[name.replace("/", ".")] = (int(row[1]), place)
    return found


LAYERS = layers()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__")


@cache
def import_nodes(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield the imports of a file, and whether each is at the top level."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    found = (one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom))
    return [(one, id(one) in top) for one in found]


@cache
def is_module(path: Path) -> bool:
    return path.with_suffix(".py").exists() or path.is_dir()


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Yield our modules imported by a file, and whether the import is inside a function or class."""
    found: list[tuple[str, bool]] = []
    for node, is_top in import_nodes(path):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "timerl_nb":
            module = node.module or ""
            for alias in node.names:
                inner = PACKAGE.parent / module.replace(".", "/") / alias.name
                names.append(f"{module}.{alias.name}" if is_module(inner) else module)
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.split(".")[0] == "timerl_nb"]
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
        found += [(name, not is_top) for name in names]
    return found


def unit(module: str) -> str:
    """Return the package of the table that contains a module, or its first folder."""
    parts = module.split(".")[1:] or ["__init__"]
    names = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((name for name in names if name in LAYERS), parts[0])


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_package_has_a_layer() -> None:
    pages = {PACKAGE / "compiler/__init__.py"}  # a package of packages with only a docstring
    assert {unit(module_name(path)) for path in FILES if path not in pages} == set(LAYERS)


def test_the_generated_pages_show_the_sources() -> None:
    for page, part in PAGES.items():
        text = page.read_text()
        assert text == with_part(text, part()), "run: .venv/bin/python -m docs.generate_map"


def test_no_import_goes_up() -> None:
    wrong: list[str] = []
    for path in FILES:
        here = module_name(path)
        for target, _ in imports(path):
            if unit(target) != unit(here) and LAYERS[unit(target)] >= LAYERS[unit(here)]:
                wrong.append(f"{here} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_no_import_of_ours_is_deferred() -> None:
    wrong = [f"{path}: {name}" for path in FILES for name, inner in imports(path) if inner]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_more_than_25_others() -> None:
    """Only the modules of public names may import more."""
    counts = {module_name(path): len({name for name, _ in imports(path)}) for path in FILES}
    del counts["timerl_nb"], counts["timerl_nb.show"]
    assert {name: n for name, n in counts.items() if n > 25} == {}


def test_no_cycle_among_modules() -> None:
    edges = {module_name(path): {name for name, _ in imports(path)} for path in FILES}
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done or name not in edges:
            return
        path.append(name)
        for target in sorted(edges[name] - {name}):
            visit(target)
        path.pop()
        done.add(name)

    for name in edges:
        visit(name)


def test_widgets_use_view_models_only() -> None:
    """View models list their needs from the lower layers."""
    for path in sorted((ROOT / "widgets/timerl_widgets").glob("*.py")):
        for name, _ in imports(path):
            assert unit(name) == "show", f"{path.name} imports {name}"


def test_the_page_has_the_types_of_view_models() -> None:
    spec = spec_from_file_location("models", ROOT / "widgets/models.py")
    assert spec is not None and spec.loader is not None
    models = module_from_spec(spec)
    spec.loader.exec_module(models)
    hint = "run: .venv/bin/python widgets/models.py"
    assert models.WRITTEN.read_text() == models.models(), hint


def test_isl_and_jax_have_one_door_each() -> None:
    doors: dict[str, tuple[str, ...]] = {
        "islpy": ("timerl_nb.compiler.isl",),
        "jax": (
            "timerl_nb.runtime.jax_backend",
            "timerl_nb.runtime.xla",
            # JAX functions are analysed when they are written, to report errors at the user's line
            "timerl_nb.compiler.language.inputs.jax_functions",
            # environments of other libraries are JAX functions of keys and trees of arrays
            "timerl_nb.env.jax_environment",
            # users write the algorithms of `trl.replay.train` as JAX functions
            "timerl_nb.replay.training.dense_networks",
            "timerl_nb.replay.training.dqn_algorithm",
            "timerl_nb.replay.training.actor_critic_learning",
            "timerl_nb.replay.training.ddpg_algorithm",
            "timerl_nb.replay.training.sac_algorithm",
        ),
    }
    for path in FILES:
        for node, _ in import_nodes(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                door = doors.get(name.split(".")[0])
                assert door is None or module_name(path).startswith(door), f"{path} imports {name}"


def test_the_reference_resolves_accesses_itself() -> None:
    """The reference must not share the compiler's mistakes."""
    edges = {module_name(path): {name for name, _ in imports(path)} for path in FILES}
    reached, pending = set[str](), ["timerl_nb.compiler.ir.reference.evaluator"]
    while pending:
        name = pending.pop()
        reached.add(name)
        pending += sorted(edges.get(name, set()) - reached)
    assert "timerl_nb.compiler.ir.reference.evaluation_rules" in reached
    apart = ("timerl_nb.compiler.ir.analysis.resolved_reads", "timerl_nb.compiler.scheduling")
    shared = {name for name in reached if name.startswith(apart)}
    assert not shared


def test_the_independent_programs_share_nothing() -> None:
    """They import only public names and no other tests, so that they cannot share a mistake."""
    for path in sorted((ROOT / "tests/independent").glob("*.py")):
        for node, _ in import_nodes(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}: relative import"
                names = [f"{node.module}.{a.name}" for a in node.names]
            for name in names:
                ours = name.split(".")[0] == "timerl_nb"
                assert not ours or name == "timerl_nb", f"{path.name} imports {name}"
                other = name.split(".")[0] == "tests" and not name.startswith("tests.independent.")
                assert not other, f"{path.name} imports {name}"
