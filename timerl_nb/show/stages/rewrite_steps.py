"""View-model of a pass's work: rewrites in order, refusals with reasons, and choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.graph_rewriting import RewriteStep
from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate, Forecast, PassChoice
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compiler.passes.rewrite_rules import describe_rule
from timerl_nb.driver.stages import Stage
from timerl_nb.show.view_model import View, shown


@dataclass(frozen=True)
class Rule:
    """Number of uses of a rewrite rule.

    Attributes:
        text: one sentence about its effect; "" if it has no description.
        page: the page of the documentation that explains the rule, or "".
    """

    rule: str
    count: int
    text: str
    page: str


@dataclass(frozen=True)
class Rewrite:
    """Rewrite step: the ids that it replaced (`before`), and the new ids (`after`)."""

    number: int
    rule: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    note: str
    text: str

    @shown
    def op_ids(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.before, *self.after)))


@dataclass(frozen=True)
class Refusal:
    """Operations that a pass left unchanged, with the reason."""

    reason: str
    op_ids: tuple[int, ...]


@dataclass(frozen=True)
class NoForecast:
    """Reason for a missing forecast."""

    problem: str


@dataclass(frozen=True)
class CandidateRow:
    """Alternative in a choice; its `forecast` (in bytes and seconds) is None if not computed."""

    name: str
    doc: str
    taken: bool
    forecast: Forecast | NoForecast | None


@dataclass(frozen=True)
class Chosen:
    """Choice of a pass between alternatives."""

    what: str
    taken: str
    why: str
    candidates: tuple[CandidateRow, ...]


@dataclass(frozen=True)
class StepsView(View):
    """Rewrites of a stage in order, its refusals by reason, and its choices.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> trl.show.StepsView.from_stage(program.stages["fuse"]).stage
        'fuse'
    """

    view = "steps"

    stage: str
    rules: tuple[Rule, ...]
    steps: tuple[Rewrite, ...]
    refused: tuple[Refusal, ...]
    choices: tuple[Chosen, ...]

    @classmethod
    def from_stage(cls, stage: Stage, *, forecast: bool = False) -> StepsView:
        """Return the steps of a stage.

        Args:
            stage: a stage of `program.stages`.
            forecast: also compute the missing forecasts of alternatives; each compiles the remaining stages
                once.

        Raises:
            CallError: the argument is not a stage.
        """
        expect_type(stage, Stage, "a stage", 'program.stages["fuse"] is one.')
        why: dict[str, list[int]] = {}
        for op_id, reason in stage.rewritten.refused.items() if stage.rewritten else ():
            why.setdefault(reason, []).append(op_id)
        counts = Counter(step.rule for step in stage.steps)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls(
            stage.name,
            tuple(_count_rule(*item) for item in ranked),  # the most used first
            tuple(
                Rewrite(k, step.rule, step.before, step.after, step.note, step_text(step))
                for k, step in enumerate(stage.steps)
            ),
            tuple(Refusal(reason, tuple(sorted(ids))) for reason, ids in sorted(why.items())),
            tuple(_describe_choice(choice, always=forecast) for choice in stage.choices),
        )

    def __str__(self) -> str:
        lines = [f"{self.stage}: {format_count(len(self.steps), 'step')}"]
        lines += [f"  {step.text}" for step in self.steps]
        for choice in self.choices:
            lines.append(f"choice: {choice.what}: {choice.taken}, because {choice.why}")
        lines += [f"refused: {ids_text(one.op_ids)}: {one.reason}" for one in self.refused]
        return "\n".join(lines)


def _count_rule(rule: str, count: int) -> Rule:
    found = describe_rule(rule)
    return Rule(rule, count, *(("", "") if found is None else (found.text, found.page)))


def _describe_choice(choice: PassChoice, *, always: bool) -> Chosen:
    def describe_candidate(one: Candidate) -> CandidateRow:
        found = one.forecast if always or one.is_forecast else None
        forecast = NoForecast(found) if isinstance(found, str) else found
        return CandidateRow(one.name, one.doc, one is choice.taken, forecast)

    return Chosen(
        choice.what,
        choice.taken.name,
        choice.why,
        tuple(map(describe_candidate, choice.candidates)),
    )


def step_text(step: RewriteStep, about: Collection[int] = ()) -> str:
    """Format a step in one line: the rule, and the first few ids before and after.

    Args:
        step: the step.
        about: ids to list first.
    """
    note = f" ({step.note})" if step.note else ""
    before, after = (ids_text(ids, about) for ids in (step.before, step.after))
    return f"{step.rule}: {before} -> {after or 'nothing'}{note}"


def ids_text(ids: tuple[int, ...], about: Collection[int] = (), most: int = 8) -> str:
    """Format ids as `%1, %2 and 5 more`; ids in `about` come first."""
    mine = tuple(k for k in ids if k in about)
    shown = ids if len(ids) <= most else mine[:most] or ids[: most - 1]
    more = f" and {len(ids) - len(shown)} more" if len(shown) < len(ids) else ""
    return ", ".join(f"%{k}" for k in shown) + more
