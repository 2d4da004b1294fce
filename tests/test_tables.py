"""Every table of rules covers every operation kind, or lists the reason for a gap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import timerl_nb
from timerl_nb.base.options import ENVIRONMENT, Options
from timerl_nb.compiler.ir.operation_kinds import KINDS, ULPS
from timerl_nb.compiler.ir.reference import evaluation_rules as reference
from timerl_nb.compiler.language.autodiff.vjp_rules import NO_VJP, VJP
from timerl_nb.compiler.passes.vectorization.axis_propagation import NO_PROPAGATION, PROPAGATION
from timerl_nb.compiler.passes.vectorization.batching_rules import NO_VECTOR, VECTOR
from timerl_nb.runtime.jax_backend import operation_rules as backend

TABLES: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "reference": (reference.RULES, reference.NO_RULE),
    "gradient": (VJP, NO_VJP),
    "vectorisation": (VECTOR, NO_VECTOR),
    "incrementalisation": (PROPAGATION, NO_PROPAGATION),
    "jax": (backend.RULES, backend.NO_RULE),
}


@pytest.mark.parametrize("name", TABLES)
def test_each_kind_has_a_rule_or_a_reason(name: str) -> None:
    rules, reasons = TABLES[name]
    assert set(rules) | set(reasons) == set(KINDS)
    assert not set(rules) & set(reasons)
    assert all(reason.strip() for reason in reasons.values())


def test_each_kind_is_documented() -> None:
    for spec in KINDS.values():
        assert spec.doc.endswith(".") and len(spec.doc) > 8, spec.kind


def test_tolerances_name_kinds() -> None:
    assert set(ULPS) <= set(KINDS)
    assert all(spec.ulps == ULPS.get(spec.kind, 0) >= 0 for spec in KINDS.values())


def test_padding_rules_name_kinds() -> None:
    assert set(backend.PADDING) | set(backend.NO_PADDING) <= set(KINDS)
    assert not set(backend.PADDING) & set(backend.NO_PADDING)


def test_each_kind_that_combines_elements_says_what_it_does_with_padding() -> None:
    """Elementwise operations need no rule: padding stays beyond the valid length."""
    combine = {
        k for k in backend.RULES if KINDS[k].arity != 0 and "elementwise" not in KINDS[k].tags
    }
    assert combine == set(backend.PADDING) | set(backend.NO_PADDING)


def test_options_and_variables_are_documented() -> None:
    reference = Path(__file__).parent.parent / "docs" / "reference"
    page = (reference / "options.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", page, re.M))
    assert rows == {f.name: repr(f.default).replace("'", '"') for f in fields(Options)}
    page = (reference / "environment-variables.md").read_text().split("\n## ")[0]
    assert dict(re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", page, re.M)) == ENVIRONMENT


def test_environment_variables_are_read_in_options_alone() -> None:
    root = Path(timerl_nb.__file__).parent
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        # recordings pass the whole environment to processes; an actor of Ray imports nothing of ours
        if parts != ("base", "options") and "scope" not in parts and parts[-1] != "actor_process":
            assert "os.environ" not in path.read_text(), path
            assert "getenv" not in path.read_text(), path
    read = re.findall(r'os\.environ\.get\("(\w+)"', (root / "base/options.py").read_text())
    assert set(read) == set(ENVIRONMENT)
