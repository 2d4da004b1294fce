"""What a pass did: its named rewrites in order, what it refused and why, and its choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from timerl_nb.ir.choice import Candidate, Choice, Forecast
from timerl_nb.ir.rewrite import Step
from timerl_nb.show.svg import text_picture
from timerl_nb.show.view import View
from timerl_nb.stages import Stage


@dataclass(frozen=True)
class StepsView(View):
    """The rewrites of a stage in order, its refusals by reason, and its choices.

    JSON: `{"view": "steps", "stage", "rules": [{"rule", "count"}], "steps": [{"number", "rule",
    "before", "after", "note", "text", "op_ids"}], "refused": [{"reason", "op_ids"}], "choices":
    [{"what", "taken", "why", "candidates": [{"name", "doc", "taken", "forecast"}]}]}`. `before` are ids
    that the step took, `after` those that it made. A forecast is `{"peak", "launches", "seconds",
    "swapped"}` in bytes and seconds, `{"problem": text}`, or null where nobody has asked for it.
    """

    stage: str
    steps: tuple[Step, ...]
    refused: Mapping[str, tuple[int, ...]]
    choices: tuple[Choice, ...]
    forecast: bool = False

    @classmethod
    def of(cls, stage: Stage, *, forecast: bool = False) -> StepsView:
        """What a stage did.

        Args:
            forecast: also forecast the candidates that the pass had no need to; each takes a trial
                of the rest of the compilation.
        """
        why: dict[str, list[int]] = {}
        for op_id, reason in stage.rewritten.refused.items() if stage.rewritten else ():
            why.setdefault(reason, []).append(op_id)
        refused = {reason: tuple(sorted(ids)) for reason, ids in sorted(why.items())}
        return cls(stage.name, stage.steps, refused, stage.choices, forecast)

    @property
    def rules(self) -> tuple[tuple[str, int], ...]:
        """How often each rule was used, the most used first."""
        counts = Counter(step.rule for step in self.steps)
        return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def values(self) -> dict[str, Any]:
        return {
            "view": "steps",
            "stage": self.stage,
            "rules": [{"rule": rule, "count": count} for rule, count in self.rules],
            "steps": [
                {
                    "number": k,
                    "rule": step.rule,
                    "before": list(step.before),
                    "after": list(step.after),
                    "note": step.note,
                    "text": step_text(step),
                    "op_ids": list(dict.fromkeys((*step.before, *step.after))),
                }
                for k, step in enumerate(self.steps)
            ],
            "refused": [
                {"reason": reason, "op_ids": list(ids)} for reason, ids in self.refused.items()
            ],
            "choices": [self._choice(choice) for choice in self.choices],
        }

    def _choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "what": choice.what,
            "taken": choice.taken.name,
            "why": choice.why,
            "candidates": [
                {
                    "name": one.name,
                    "doc": one.doc,
                    "taken": one is choice.taken,
                    "forecast": self._forecast(one),
                }
                for one in choice.candidates
            ],
        }

    def _forecast(self, candidate: Candidate) -> dict[str, Any] | None:
        if not (self.forecast or candidate.is_forecast):
            return None
        found = candidate.forecast
        if not isinstance(found, Forecast):
            return {"problem": found}
        return {
            "peak": found.peak,
            "launches": found.launches,
            "seconds": found.seconds,
            "swapped": found.swapped,
        }

    def __str__(self) -> str:
        lines = [f"{self.stage}: {len(self.steps)} steps"]
        lines += [f"  {step_text(step)}" for step in self.steps]
        for choice in self.choices:
            lines.append(f"choice: {choice.what}: {choice.taken.name}, because {choice.why}")
        for reason, ids in self.refused.items():
            lines.append(f"left alone: {ids_text(ids)}: {reason}")
        return "\n".join(lines)

    def to_svg(self) -> str:
        return text_picture(str(self), most=60)


def step_text(step: Step, about: Collection[int] = ()) -> str:
    """A step in a line: the rule, what it took and what it made, the first few of many.

    Args:
        about: the ids to name first.
    """
    note = f" ({step.note})" if step.note else ""
    before, after = (ids_text(ids, about) for ids in (step.before, step.after))
    return f"{step.rule}: {before} -> {after or 'nothing'}{note}"


def ids_text(ids: tuple[int, ...], about: Collection[int] = (), most: int = 8) -> str:
    """`%1, %2 and 5 more`; where it is about some, those and how many others there are."""
    mine = tuple(k for k in ids if k in about)
    shown = ids if len(ids) <= most else mine[:most] or ids[: most - 1]
    more = f" and {len(ids) - len(shown)} more" if len(shown) < len(ids) else ""
    return ", ".join(f"%{k}" for k in shown) + more
