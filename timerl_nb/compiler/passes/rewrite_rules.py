"""Description of every rewrite rule, and the page of the documentation that explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class RuleDescription:
    """Description of a rule.

    Attributes:
        text: one sentence about the effect of the rule.
        page: the page of its pass.
    """

    text: str
    page: str


_PAGE: Final = "docs/passes/{}.md"
# By pass. A name that ends or begins with "…" stands for all names with this beginning or end.
_RULES: Final[Mapping[str, Mapping[str, str]]] = {
    "simplify": {
        "identity": "A copy, or an operation with a neutral operand such as x * 1, becomes its operand.",
        "double": "A pair of inverse operations, such as -(-x), becomes the inner operand.",
        "trivial merge": "A merge with one branch becomes this branch.",
        "signs": "A negation joins an addition or subtraction: x + -y becomes x - y.",
        "broadcast removal": "A broadcast before an elementwise operation is removed, because the operation broadcasts its operands.",
        "sum of repeated": "A sum over repeated values becomes a multiplication by their number.",
        "sum of a transpose": "A sum of a transposed tensor reads the tensor without the transposition.",
        "contraction of a transpose": "A contraction takes over the order of axes of a transposed operand.",
        "constant folding": "An operation on constants becomes a constant.",
        "constants together": "Two constant factors become one.",
        "factor lifted out of a sum": "A constant factor multiplies a sum once, instead of each of its terms.",
        "unused points": "An operation is restricted to the points that are read.",
        "duplicate code": "One of two equal operations is removed.",
        "dead code": "Operations without influence on an output are removed.",
        "order dropped": "An order between two operations (ctx.before) is removed with one of them.",
    },
    "contract": {
        "sum of a contraction": "A sum over axes of a contraction becomes part of the contraction.",
        "sum of an outer product": "A sum of products becomes a contraction.",
    },
    "lift": {
        "discounted sum": "A recurrence with one constant factor becomes a sliding sum.",
        "running sum": "A recurrence that adds a term at each step becomes a sliding sum.",
        "running product": "A recurrence that multiplies by a factor at each step becomes a scan.",
        "linear recurrence": "A recurrence that is linear in its value becomes a scan.",
        "running max": "A recurrence of maxima becomes a sliding maximum.",
        "running min": "A recurrence of minima becomes a sliding minimum.",
    },
    "vectorize": {
        "vectorize over …": "A symbolic dimension becomes an axis of arrays.",
    },
    "windows": {
        "… step by step": "A reduction of a growing or shrinking slice is updated at each point.",
    },
    "accumulate": {
        "accumulated": "A sum adds up its terms as they are computed, without storing them.",
    },
    "rematerialize": {
        "compute again": "A reader computes a value again, so the value need not be stored.",
    },
    "incrementalize": {
        "cut": "A reduction is split into reductions of blocks.",
        "blocks of …": "Operations are computed for one block at a time.",
    },
    "fuse": {
        "recurrence": "The operations of a cycle become one kernel, if its reads stay at a point or go back along one direction.",
        "single reader": "A producer joins the kernel of all its readers, if they read it at their own point.",
        "no further inputs": "A reader joins its producer, as it needs nothing but the producer's inputs.",
        "first reader": "A producer joins the reader on which all its other readers depend.",
        "equal inputs": "Groups with equal inputs, such as the updates of all parameters, become one kernel.",
        "shared inputs": "A group joins another one that has all of its inputs.",
    },
    "dynamic_bounds": {
        "sum per iteration": "A sum over all iterations becomes a sum of the sums of each iteration.",
        "end of iteration": "An operation after an iteration reads the last point of this iteration.",
        "varies with …": "An operation that uses a dynamic length gets the dimensions of this length.",
        "evaluated for other lengths": "An operation is copied for a reader that has another dynamic length.",
    },
}


def describe_rule(rule: str) -> RuleDescription | None:
    """Return the description of a rule by its name in `RewriteStep.rule`; None for an unknown rule."""
    for name, rules in _RULES.items():
        for known, text in rules.items():
            first, dots, last = known.partition("…")
            if known == rule or (dots and rule.startswith(first) and rule.endswith(last)):
                return RuleDescription(text, _PAGE.format(name))
    return None


def rules_of(stage: str) -> Mapping[str, str]:
    """Return the rules of a pass with their descriptions."""
    return _RULES.get(stage, {})
