"""Search for a fast plan within a memory budget.

A decision covers vectorised dimensions, rematerialisation, block sizes and swapping. An estimate of its time,
and a lower bound of its memory, follow from its graph alone. The search examines fast decisions first, and
plans memory only for candidates that may fit. It ends when no remaining candidate is faster than the best by
the estimate. Rules of thumb (`_NEAR`, `_LITTLE`) skip further candidates, so the result need not be the fastest.
"""

from __future__ import annotations

import time
from bisect import bisect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, combinations
from math import inf
from typing import Final

from timerl_nb.base.errors import BoundsError, BudgetError, CeilingError, OptionError, ScheduleError
from timerl_nb.base.lru_cache import Lru
from timerl_nb.base.options import Options
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate, Forecast
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.memory.budget.budget_check import Planner
from timerl_nb.compiler.memory.budget.candidate_cost import graph_seconds
from timerl_nb.compiler.memory.budget.cost_forecast import forecast
from timerl_nb.compiler.memory.budget.memory_lower_bound import (
    lower_bound,
    lower_bound_swapped,
    unfused_lower_bound,
)
from timerl_nb.compiler.memory.liveness.last_uses import KnownLifetimes
from timerl_nb.compiler.memory.liveness.unavoidable_liveness import live_across
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.per_device_memory import least_share
from timerl_nb.compiler.memory.placement.placement_planner import Plans
from timerl_nb.compiler.scheduling.statements import Statements
from timerl_nb.compiler.scheduling.vectorization_trials import Trials
from timerl_nb.compiler.symbolic.dimensions import Dim, bounds_text
from timerl_nb.driver.compiling.compile_decision import (
    Changed,
    Decision,
    SearchResult,
    Stated,
    stated_beyond,
)
from timerl_nb.driver.compiling.machine_dependent_options import machine_of, planner
from timerl_nb.driver.search.decision_graphs import MANY, DecisionGraphs
from timerl_nb.driver.search.search_choices import explain_choices
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver

# limit of points in a trial, if a few iterations do not represent all
MOST_POINTS: Final = 600_000
# A decision may be the best with blocks if it is faster than the best by this factor.
_NEAR: Final = 1.5
# Fraction of the budget that swapping may add if blocks nearly fit.
_LITTLE: Final = 0.25
# Fraction of the budget above which a lower bound counts as tight.
_TIGHT: Final = 0.5
# The last step of the bound of a decision, its forecast.
_PLANNED: Final = 3
# Options of passes. Without one of these passes, a program may need less memory.
_PASSES: Final = ("lift", "contract", "accumulate", "fuse", "trial", "simplify")


# Plans without swaps, by graph, bounds and planner.
Known = Lru[tuple[Pdg, str, Planner], Plans]


def key_of_plans(pdg: Pdg, bounds: Mapping[str, int], options: Options) -> tuple[Pdg, str, Planner]:
    """Return the key of a graph's plans without swaps."""
    how = replace(planner(options), budget=None, most=MOST_POINTS)
    return pdg, bounds_text(bounds), how


class Search:
    """One search.

    Args:
        pdg: the source graph.
        options: the options.
        bounds: actual bounds.
        trials: trials with cached results, shared between searches.
        budget: device bytes; None for no limit.
        known: cached plans without swaps, equal for all budgets.
        lifetimes: cached lifetimes of schedules, equal for all bounds.
        stated: the excess of XLA's figure over the estimate, by decision.
        changed: the options changed by an outer search.
        observer: receives every examined decision.
    """

    def __init__(
        self,
        pdg: Pdg,
        options: Options,
        bounds: Mapping[str, int],
        trials: Trials,
        budget: int | None,
        known: Known,
        lifetimes: KnownLifetimes,
        stated: Stated = (),
        changed: Changed = (),
        observer: CompileObserver = UNOBSERVED,
    ) -> None:
        self._known, self._lifetimes, self._observer = known, lifetimes, observer
        self._pdg, self._bounds = pdg, bounds
        self._options = options.with_(**dict(changed))
        self._changed, self._stated = Decision(changed=changed), stated
        self._trials, self._limited, self._budget = trials, budget is not None, budget or 0
        self._machine = machine_of(options)
        self._graphs = DecisionGraphs(pdg, self._options, bounds, trials, self._changed)
        self._floors: dict[Pdg, int] = {}
        self._across: dict[Pdg, int] = {}
        self._quick: dict[Pdg, float] = {}
        self._tried: dict[Decision, Forecast | str] = {}
        self._best: tuple[float, Decision] | None = None
        self._unscheduled: dict[Decision, int] = {}
        self._least_of: dict[Decision, int] = {}
        # Plans are large: only those of the last and of the chosen decision are stored.
        self._plan_of_decision: dict[Decision, MemoryPlan] = {}
        self._taken: Decision | None = None

    def find_decision(self, *, least: bool = True) -> SearchResult:
        """Return the fastest examined decision that fits, or else the one with the lowest memory.

        Without a budget, all choices are left to the passes.

        Args:
            least: whether to change options if nothing fits, and finally return the decision with the
                lowest memory.

        Raises:
            BudgetError: no decision fits, and `least` is False.
        """
        if not self._limited:
            return SearchResult(Decision(), {})
        start = time.perf_counter()
        others = self._relaxed_searches if least else []
        search = next((one for one in chain([self], others) if one._search()), None)
        if search is not None and search._best is not None:
            taken = search._best[1]
        elif least:
            search, taken = self._least_memory_decision()
        else:
            able = [one.needed for one in self._tried.values() if isinstance(one, Forecast)]
            what = f"none of the examined plans fits {self._budget:,} bytes."
            raise BudgetError(what, needed=min(able, default=self._budget + 1))
        seconds = time.perf_counter() - start
        choices = explain_choices(search._graphs, search._tried, self._budget, taken)
        return SearchResult(taken, choices, seconds, search._plan_of_decision.get(taken))

    def _search(self) -> bool:
        """Whether any decision fits."""
        if self._graphs.unbudgeted_decision is None or not self._try(
            self._graphs.unbudgeted_decision
        ):
            self._try_promising()
        return self._best is not None

    @cached_property
    def _relaxed_searches(self) -> list[Search]:
        """Searches with one option changed, for programs without a fitting decision in this search.

        Each change keeps dimensions in loops or omits a pass, and makes the program slower. Options set by
        the user are not changed. Searches of many dimensions take minutes, so passes are omitted for small
        programs only.
        """
        options, names = self._options, [dim.name for dim in self._pdg.dims]
        if options.vectorize is not True or not all(getattr(options, one) for one in _PASSES):
            return []
        counts = range(len(names) - 1, 0, -1) if len(names) <= MANY else ()
        kept = [some for count in counts for some in combinations(names, count)]
        changes: list[Changed] = [(("vectorize", some),) for some in kept]
        changes.append((("vectorize", False),))
        if len(names) < MANY:
            changes += [((name, False),) for name in _PASSES]
        shared = self._trials, self._budget, self._known, self._lifetimes, self._stated
        given = self._pdg, options, self._bounds, *shared
        return [Search(*given, one, self._observer) for one in changes]

    def _try_promising(self) -> None:
        """Examine promising decisions, after the fastest one has exceeded the budget."""
        for recompute in self._graphs.recompute:
            wholes = self._decisions_without_blocks(recompute=recompute)
            for one in wholes:
                if self._may_be_best(one) and not self._try(one) and self._graphs.swaps:
                    self._try(replace(one, swap=True))
                if self._may_be_best(one):
                    self._try_blocks(one)
                if self._best is not None:
                    self._swap_blocks(one)
        wholes = [one for one in self._tried if one.blocks == () and not one.swap]
        for one in sorted(wholes, key=self._seconds):
            self._swap_blocks(one)

    def ask(self, candidate: Candidate) -> Forecast | str:
        """Return the forecast of a candidate, with all other choices left to the passes."""
        return self._get_forecast(replace(self._changed, **dict(candidate.change)))

    # --- candidates ------------------------------------------------------------------------------

    def _decisions_without_blocks(self, *, recompute: bool) -> list[Decision]:
        """Return decisions with different graphs, without blocks and swaps, the fastest first."""
        made: dict[Pdg | None, Decision] = {}
        for strategies in self._graphs.strategy_combinations:
            kept, one = (
                replace(
                    self._changed, strategies=strategies, recompute=value, blocks=(), swap=False
                )
                for value in (False, recompute)
            )
            # additional computation is never faster
            more = self._may_be_best(kept) and self._graphs.unfused_graph(
                one
            ) != self._graphs.unfused_graph(kept)
            if recompute == self._graphs.recompute[0] or more:
                made.setdefault(self._graphs.unfused_graph(one), one)
        found = list(made.values())
        if (
            self._graphs.unbudgeted_decision is not None
            and not recompute
            and self._graphs.unfused_graph(self._graphs.unbudgeted_decision) not in made
        ):
            found.insert(0, self._graphs.unbudgeted_decision)  # its graph is tiled already
        return sorted(found, key=lambda one: (self._seconds(one), self._estimate(one)))

    # --- costs of a decision ---------------------------------------------------------------------

    def _unfused_lower_bound(self, decision: Decision) -> int:
        """Return a lower bound of the bytes of every plan, known before fusion."""
        pdg = self._graphs.unfused_graph(decision)
        if pdg is None:
            return 0
        if pdg not in self._floors:
            self._floors[pdg] = self._bytes_per_device(unfused_lower_bound(pdg, self._bounds))
        known = self._floors[pdg]
        if known > self._budget or decision.swap or (self._graphs.swaps and not decision.blocks):
            return known
        return max(known, self._live_across(pdg))

    def _live_across(self, pdg: Pdg) -> int:
        """Return a lower bound of the bytes of every plan without swaps."""
        if pdg not in self._across:
            self._across[pdg] = self._bytes_per_device(live_across(pdg, self._bounds))
        return self._across[pdg]

    def _is_hopeless(self, decision: Decision) -> bool:
        """Whether the decision cannot fit under any fusion."""
        return self._limited and self._unfused_lower_bound(decision) > self._budget

    def _seconds(self, decision: Decision) -> float:
        """Return the estimated seconds without swaps, at least those of the fastest decision."""
        known = self._estimate(decision)
        if self._graphs.unbudgeted_decision is None or not self._limited:
            return known
        return max(known, self._estimate(self._graphs.unbudgeted_decision))

    def _estimate(self, decision: Decision) -> float:
        """Return the estimate of the cost model; 0 if the decision cannot fit.

        Along one dimension, larger blocks are faster.
        """
        if self._is_hopeless(decision):
            return 0.0
        pdg = self._graphs.graph(decision)
        if pdg is None:
            return inf
        if pdg not in self._quick:
            self._quick[pdg] = graph_seconds(pdg, self._bounds, self._machine)
        return self._quick[pdg]

    def _floor(self, decision: Decision) -> int:
        """Return a lower bound of the bytes of every plan, after fusion if the decision may fit."""
        if self._is_hopeless(decision):
            return self._unfused_lower_bound(decision)
        return self._lower_bound(decision)

    def _lower_bound(self, decision: Decision) -> int:
        """Return a lower bound of the bytes of every plan of the fused graph."""
        pdg = self._graphs.graph(decision)
        if pdg is None:
            return 0
        if pdg not in self._floors:
            self._floors[pdg] = self._bytes_per_device(
                lower_bound(Statements.from_graph(pdg), self._bounds)
            )
        return self._floors[pdg]

    def _bytes_per_device(self, nbytes: int) -> int:
        """Return the least share of one device."""
        return least_share(nbytes, self._options.device_count)

    def _get_forecast(self, decision: Decision) -> Forecast | str:
        pdg = self._graphs.graph(decision)
        if pdg is None:
            return "its graph takes too many isl operations"
        try:
            beyond = stated_beyond(decision, self._stated)
            how = planner(self._options, swap=decision.swap, beyond=beyond)
            if self._limited and self._is_too_much(decision):
                how = replace(
                    how, budget=0
                )  # then its least memory is computed, however slow its swaps
            with limit_isl_work("a trial"):
                made = how.choose_fitting(self._plans(pdg))
            self._plan_of_decision = {
                k: one for k, one in self._plan_of_decision.items() if k == self._taken
            }
            self._plan_of_decision[decision] = made
            return forecast(made, self._seconds(decision), self._machine).with_kernel_bytes(beyond)
        except CeilingError as error:
            return error.what
        except ScheduleError:
            return "no order of execution exists"
        except (BoundsError, OptionError) as error:  # too many points, or nothing to divide
            return error.what

    def _plans(self, pdg: Pdg) -> Plans:
        """Return the plans of a graph without swaps."""
        key = key_of_plans(pdg, self._bounds, self._options)
        given = self._bounds, self._lifetimes
        return self._known.get(key, lambda: key[-1].plans(*self._trials.schedule(pdg), *given))

    def _scheduled_lower_bound(self, decision: Decision) -> int:
        """Return a better lower bound, with the help of a schedule."""
        pdg, floor = self._graphs.graph(decision), self._lower_bound(decision)
        if pdg is not None and decision not in self._least_of:
            self._least_of[decision] = floor
            with suppress(CeilingError, ScheduleError, BoundsError), limit_isl_work("a trial"):
                least = self._bytes_per_device(self._plans(pdg).lower_bound(swap=decision.swap))
                self._least_of[decision] = max(floor, least)
        return self._least_of.get(decision, floor)

    def _at_least(self, decision: Decision) -> int:
        """Return a lower bound of the bytes, with only as much work as needed to exceed the budget."""
        floor = self._floor(decision)
        if floor > self._budget:
            return floor
        floor = self._ahead_of_schedule(decision)
        return floor if floor > self._budget else self._scheduled_lower_bound(decision)

    def _fused_lower_bound(self, decision: Decision) -> int:
        """Return the best lower bound that needs a fused graph, but no schedule."""
        return max(self._lower_bound(decision), self._ahead_of_schedule(decision))

    def _ahead_of_schedule(self, decision: Decision) -> int:
        """Return the cached lower bound that needs no schedule."""
        if decision not in self._unscheduled:
            self._unscheduled[decision] = self._known_unscheduled(decision)
        return self._unscheduled[decision]

    def _known_unscheduled(self, decision: Decision) -> int:
        whole, pdg = self._graphs.unfused_graph(decision), self._graphs.graph(decision)
        if whole is None or pdg is None:
            return 0
        if not decision.swap:
            return self._live_across(whole)
        kept = replace(decision, swap=False)
        known = max(self._ahead_of_schedule(kept), self._known_bytes(kept))
        if known <= self._budget:
            return 0  # it may fit without swaps
        return min(known, lower_bound_swapped(Statements.from_graph(pdg), self._bounds))

    # --- examination -----------------------------------------------------------------------------

    def _try(self, decision: Decision) -> bool:
        """Whether a decision fits; with XLA, including its buffers.

        The fastest fitting decision becomes the best, even if only the interpreter can run it.
        """
        if decision not in self._tried:
            least = self._at_least(decision)
            if least > self._budget:
                self._note(decision, f"it needs at least {least:,} bytes at once")
            else:
                self._note(decision, self._get_forecast(decision))
        found = self._tried[decision]
        if isinstance(found, str) or found.needed > self._budget:
            return False
        if self._best is None or found.seconds < self._best[0]:
            self._best = found.seconds, decision
            self._taken = decision
        return found.is_lowered or not found.buffers

    def _is_within_budget(self, decision: Decision) -> bool:
        """Whether a decision fits, possibly in the interpreter only."""
        self._try(decision)
        found = self._tried[decision]
        return isinstance(found, Forecast) and found.needed <= self._budget

    def _note(self, decision: Decision, found: Forecast | str) -> None:
        self._tried[decision] = found
        self._observer.candidate(Candidate(str(decision), str(decision), known=found))

    def _may_be_best(self, one: Decision) -> bool:
        return self._best is None or self._seconds(one) < self._best[0]

    def _is_near(self, whole: Decision) -> bool:
        """Whether tiled variants are probably slower than the best, so that this is checked first."""
        return self._best is not None and self._best[0] < _NEAR * self._seconds(whole)

    def _is_tight(self, whole: Decision, smallest: Decision, freed: int) -> bool:
        """Whether even the smallest blocks barely fit, so that this is checked first."""
        left = self._known_bytes(whole) - freed
        return max(left, self._unfused_lower_bound(smallest) / _TIGHT) > self._budget

    def _is_slower(self, one: Decision) -> bool:
        """Whether known times of the decision, or of the one without recomputation, exclude it as the best."""
        alike = (
            self._graphs.known_graph(replace(one, recompute=value))
            for value in (one.recompute, False)
        )
        known = max((self._quick.get(pdg, 0.0) for pdg in alike if pdg is not None), default=0.0)
        return self._best is not None and known >= self._best[0]

    def _try_blocks(self, whole: Decision) -> None:
        """Examine the largest fitting blocks along each dimension."""
        if whole.blocks is None or not self._is_planned(whole):
            return  # blocks have more points, so they cannot be planned either
        for dim, sizes, freed in self._graphs.block_sizes(whole):
            self._largest(whole, sizes, lambda n, d=dim: _set_block_size(whole, d, n), freed)

    def _swap_blocks(self, whole: Decision) -> None:
        """Examine blocks with swaps, if nothing else fits or everything else is much slower."""
        if not self._graphs.swaps or self._is_near(whole):
            return
        for dim, sizes, freed in self._graphs.block_sizes(whole):
            if self._best is not None:
                few = (
                    k
                    for k, n in enumerate(sizes)
                    if self._is_nearly_enough(_set_block_size(whole, dim, n))
                )
                sizes = sizes[next(few, len(sizes)) :]
            if sizes:
                swapped = replace(whole, swap=True)
                self._largest(
                    swapped, sizes, lambda n, d=dim, w=swapped: _set_block_size(w, d, n), freed
                )

    def _is_nearly_enough(self, one: Decision) -> bool:
        """Whether the decision was examined and exceeds the budget by a small fraction only."""
        if one in self._tried and self._try(one):
            return False
        looked_at = one in self._tried or one in self._unscheduled
        return looked_at and self._known_bytes(one) <= (1 + _LITTLE) * self._budget

    def _largest(
        self, whole: Decision, sizes: list[int], decision: Callable[[int], Decision], freed: int
    ) -> None:
        """Find the largest fitting blocks; the smallest plannable ones show whether any fit."""

        def is_planned(size: int) -> bool:
            self._try(decision(size))
            return self._is_planned(decision(size))

        # smaller blocks are slower
        slow = (k for k, n in enumerate(sizes) if self._is_slower(decision(n)))
        sizes = sizes[max(slow, default=-1) + 1 :]
        if not sizes:
            return
        smallest = decision(sizes[0])
        if self._best is None or whole.swap or self._is_tight(whole, smallest, freed):
            if self._floor(smallest) > self._budget:
                self._try(smallest)
                return
            if self._is_near(whole) and not self._may_be_best(decision(sizes[-1])):
                return
            if self._at_least(smallest) > self._budget:
                self._try(smallest)
                return
        if not whole.swap:  # without a plan, little is known about swaps
            largest = self._pop_largest(sizes, decision)
            if largest is None or self._try(largest) or not sizes:
                return
        if self._may_be_best(decision(sizes[-1])):
            if whole.swap and self._known_bytes(smallest) <= _TIGHT * self._budget:
                if bisect(sizes, False, 1, key=lambda n: not self._try(decision(n))) > 1:
                    return  # the smallest blocks need no plan
            k = bisect(sizes, False, key=is_planned) if not is_planned(sizes[0]) else 0
            if k < len(sizes):
                fits = self._try if self._try(decision(sizes[k])) else self._is_within_budget
                if fits(decision(sizes[k])):
                    bisect(sizes, False, k + 1, key=lambda n: not fits(decision(n)))

    def _pop_largest(
        self, sizes: list[int], decision: Callable[[int], Decision]
    ) -> Decision | None:
        """Remove and return the largest blocks that may fit, with all larger ones; None if they cannot be the
        best.
        """
        if self._best is None:
            bytes_of = [*map(decision, sizes)]
            del sizes[bisect(bytes_of, self._budget, key=self._at_least) :]
            return decision(sizes.pop()) if sizes else None
        while sizes and self._may_be_best(
            one := decision(sizes.pop())
        ):  # smaller blocks are slower
            if self._at_least(one) <= self._budget:
                return one
        return None

    def _is_planned(self, one: Decision) -> bool:
        """Whether the memory of a decision is known, or known to exceed the budget."""
        return isinstance(self._tried[one], Forecast) or self._is_too_much(one)

    def _is_too_much(self, one: Decision) -> bool:
        return self._known_bytes(one) > self._budget

    def _known_bytes(self, one: Decision) -> int:
        """Return the best known lower bound of the bytes."""
        return max(self._floor(one), self._unscheduled.get(one, 0), self._least_of.get(one, 0))

    def _least_memory_decision(self) -> tuple[Search, Decision]:
        """Return the decision with the lowest memory in this and the relaxed searches."""
        searches = [self, *self._relaxed_searches]
        able = [
            (search, one)
            for search in searches
            for one in search._tried
            if one.swap == search._graphs.swaps
        ]
        # A decision's bound improves in four steps: floor, bound without a schedule, bound with one,
        # forecast.
        queue = [(search._floor(one), rank, 0) for rank, (search, one) in enumerate(able)]
        heapify(queue)
        seen = set[tuple[str, bool]]()  # different options often lead to equal graphs
        while queue:
            least, rank, known = heappop(queue)
            search, one = able[rank]
            if known == _PLANNED:
                return search, one
            if known == 1 and (written := search._graphs.graph_text(one)) is not None:
                if (written, one.swap) in seen:
                    continue
                seen.add((written, one.swap))
            found = search._tried[one]
            if isinstance(found, str) and search._is_too_much(one):
                if known < _PLANNED - 1:
                    bound = search._scheduled_lower_bound if known else search._fused_lower_bound
                    heappush(queue, (max(least, bound(one)), rank, known + 1))
                    continue
                found = search._tried[one] = search._get_forecast(one)
            if isinstance(found, Forecast):
                heappush(queue, (found.needed, rank, _PLANNED))
                search._taken = able[min(entry for entry in queue if entry[2] == _PLANNED)[1]][1]
        strategies = tuple((dim.name, self._graphs.strategies[0]) for dim in self._graphs.dims)
        return self, Decision(strategies, self._graphs.recompute[0], (), swap=False)


def _set_block_size(one: Decision, dim: Dim, size: int) -> Decision:
    return replace(one, blocks=((dim.name, size),))
