"""The search for what a program does to keep to a budget, and to be as fast as it can within it.

One search owns all of it: which dimensions become axes, what is computed again, which reductions run in
blocks, and whether values wait on the host. A decision's seconds are known from its graph alone, and
bytes below which no plan of it comes; so decisions are looked at the quickest first, memory is planned
for those alone that may fit, and the search ends where no other can be quicker than the best that does.
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
from timerl_nb.driver.compiling.machine_dependent_options import planner
from timerl_nb.driver.search.decision_graphs import MANY, DecisionGraphs
from timerl_nb.driver.search.machine_constants import machine_here
from timerl_nb.driver.search.search_choices import explain_choices
from timerl_nb.driver.stages import UNOBSERVED, CompileObserver

# Points that a trial looks at one by one, where no few of a program's turns say what all do.
MOST_POINTS: Final = 600_000
# What is so many times as quick as the best may be the best in blocks, too.
_NEAR: Final = 1.5
# Of a budget, what may wait on the host where blocks all but fit.
_LITTLE: Final = 0.25
# Of a budget, what is all but too much.
_TIGHT: Final = 0.5
# Options for passes; without one of these passes a program may take less memory.
_PASSES: Final = ("lift", "contract", "accumulate", "fuse", "trial", "simplify")


# Plans without swaps by graph, bounds, and how they are made.
Known = Lru[tuple[Pdg, str, Planner], Plans]


class Search:
    """One search.

    Args:
        pdg: the source graph.
        bounds: actual bounds.
        trials: whose work is shared.
        budget: device bytes; None for no limit.
        known: plans without swaps, which are the same for all budgets.
        lifetimes: those of schedules, which are the same under all bounds.
        stated: by decision, the bytes that XLA states for it beyond the estimate.
        changed: the options that an outer search has changed.
        observer: gets every decision that was tried.
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
        self._machine = machine_here()
        self._graphs = DecisionGraphs(pdg, self._options, bounds, trials, self._changed)
        self._floors: dict[Pdg, int] = {}
        self._across: dict[Pdg, int] = {}
        self._quick: dict[Pdg, float] = {}
        self._tried: dict[Decision, Forecast | str] = {}
        self._best: tuple[float, Decision] | None = None
        self._unscheduled: dict[Decision, int] = {}
        self._least_of: dict[Decision, int] = {}
        # plans are large: these are the last decision's, and the one's to be taken
        self._made: dict[Decision, MemoryPlan] = {}
        self._taken: Decision | None = None

    def find_decision(self, *, least: bool = True) -> SearchResult:
        """The quickest decision of those that fit; where none does, the one that needs least.

        Without a budget all is left to the passes.

        Args:
            least: whether to look for that, and to change options where nothing fits without.

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
            what = f"nothing that was tried fits {self._budget:,} bytes."
            raise BudgetError(what, needed=min(able, default=self._budget + 1))
        seconds = time.perf_counter() - start
        choices = explain_choices(search._graphs, search._tried, self._budget, taken)
        return SearchResult(taken, choices, seconds, search._made.get(taken))

    def _search(self) -> bool:
        """Whether any decision fits."""
        if self._graphs.unbudgeted_decision is None or not self._try(
            self._graphs.unbudgeted_decision
        ):
            self._try_promising()
        return self._best is not None

    @cached_property
    def _relaxed_searches(self) -> list[Search]:
        """Searches with one option changed, for a program without a fitting decision in this search.

        Each change keeps dimensions in their loops or leaves out a pass, and makes the program
        slower. Options already changed by the user are not varied. Programs of many
        dimensions take minutes to search, so only small programs are searched without passes.
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
        """Try what may be the best, where what is chosen for speed alone needs too much."""
        for again in self._graphs.again:
            wholes = self._decisions_without_blocks(again=again)
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
        """What a candidate would come to, with all else left to the passes."""
        return self._get_forecast(replace(self._changed, **dict(candidate.change)))

    # --- what there is to decide -----------------------------------------------------------------

    def _decisions_without_blocks(self, *, again: bool) -> list[Decision]:
        """Decisions without blocks and swaps, each of another graph, the quickest first."""
        made: dict[Pdg | None, Decision] = {}
        for ways in self._graphs.combined_ways:
            kept, one = (
                replace(self._changed, ways=ways, again=way, blocks=(), swap=False)
                for way in (False, again)
            )
            # computing more takes no less
            more = self._may_be_best(kept) and self._graphs.unfused_graph(
                one
            ) != self._graphs.unfused_graph(kept)
            if again == self._graphs.again[0] or more:
                made.setdefault(self._graphs.unfused_graph(one), one)
        found = list(made.values())
        if (
            self._graphs.unbudgeted_decision is not None
            and not again
            and self._graphs.unfused_graph(self._graphs.unbudgeted_decision) not in made
        ):
            found.insert(
                0, self._graphs.unbudgeted_decision
            )  # of a graph that is in blocks already
        return sorted(found, key=lambda one: (self._seconds(one), self._estimate(one)))

    # --- what comes of a decision ----------------------------------------------------------------

    def _unfused_lower_bound(self, decision: Decision) -> int:
        """Bytes below which no plan comes, known before anything is fused."""
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
        """The same of plans without swaps."""
        if pdg not in self._across:
            self._across[pdg] = self._bytes_per_device(live_across(pdg, self._bounds))
        return self._across[pdg]

    def _is_hopeless(self, decision: Decision) -> bool:
        """Whether it cannot fit, however it is fused."""
        return self._limited and self._unfused_lower_bound(decision) > self._budget

    def _seconds(self, decision: Decision) -> float:
        """Seconds without swaps, reckoned no fewer than of what is chosen for speed alone."""
        known = self._estimate(decision)
        if self._graphs.unbudgeted_decision is None or not self._limited:
            return known
        return max(known, self._estimate(self._graphs.unbudgeted_decision))

    def _estimate(self, decision: Decision) -> float:
        """What the cost model says, 0 of what cannot fit; of blocks along a dimension, the largest take fewest."""
        if self._is_hopeless(decision):
            return 0.0
        pdg = self._graphs.graph(decision)
        if pdg is None:
            return inf
        if pdg not in self._quick:
            self._quick[pdg] = graph_seconds(pdg, self._bounds, self._machine)
        return self._quick[pdg]

    def _floor(self, decision: Decision) -> int:
        """Bytes below which no plan of it comes; of what may fit those of the fused graph."""
        if self._is_hopeless(decision):
            return self._unfused_lower_bound(decision)
        return self._lower_bound(decision)

    def _lower_bound(self, decision: Decision) -> int:
        """The same of the fused graph."""
        pdg = self._graphs.graph(decision)
        if pdg is None:
            return 0
        if pdg not in self._floors:
            self._floors[pdg] = self._bytes_per_device(
                lower_bound(Statements.from_graph(pdg), self._bounds)
            )
        return self._floors[pdg]

    def _bytes_per_device(self, nbytes: int) -> int:
        """What one of the devices needs at least of so many bytes."""
        return least_share(nbytes, self._options.devices)

    def _get_forecast(self, decision: Decision) -> Forecast | str:
        pdg = self._graphs.graph(decision)
        if pdg is None:
            return "making it takes too many isl operations"
        try:
            beyond = stated_beyond(decision, self._stated)
            how = planner(self._options, swap=decision.swap, beyond=beyond)
            if self._limited and self._is_too_much(decision):
                how = replace(how, budget=0)  # what it needs least then, however slow swaps are
            with limit_isl_work("a trial"):
                made = how.choose_fitting(self._plans(pdg))
            self._made = {k: one for k, one in self._made.items() if k == self._taken}
            self._made[decision] = made
            return forecast(made, self._seconds(decision), self._machine).with_kernel_bytes(beyond)
        except CeilingError as error:
            return error.what
        except ScheduleError:
            return "no order of execution exists"
        except (BoundsError, OptionError) as error:  # too many points, or none to be divided
            return error.what

    def _plans(self, pdg: Pdg) -> Plans:
        """The plans of a graph without swaps."""
        how = replace(planner(self._options), budget=None, most=MOST_POINTS)
        return self._known.get(
            (pdg, bounds_text(self._bounds), how),
            lambda: how.plans(*self._trials.schedule(pdg), self._bounds, self._lifetimes),
        )

    def _scheduled_lower_bound(self, decision: Decision) -> int:
        """The same, known better since there is a schedule."""
        pdg, floor = self._graphs.graph(decision), self._lower_bound(decision)
        if pdg is not None and decision not in self._least_of:
            self._least_of[decision] = floor
            with suppress(CeilingError, ScheduleError, BoundsError), limit_isl_work("a trial"):
                least = self._bytes_per_device(self._plans(pdg).lower_bound(swap=decision.swap))
                self._least_of[decision] = max(floor, least)
        return self._least_of.get(decision, floor)

    def _at_least(self, decision: Decision) -> int:
        """Bytes below which no plan of it comes, known as well as it takes to say that this is too much."""
        floor = self._floor(decision)
        if floor > self._budget:
            return floor
        floor = self._ahead_of_schedule(decision)
        return floor if floor > self._budget else self._scheduled_lower_bound(decision)

    def _ahead_of_schedule(self, decision: Decision) -> int:
        """The same, of all that is known without a schedule."""
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
            return 0  # it may fit as it is
        return min(known, lower_bound_swapped(Statements.from_graph(pdg), self._bounds))

    # --- looking ---------------------------------------------------------------------------------

    def _try(self, decision: Decision) -> bool:
        """Whether a decision fits, in XLA's buffers where XLA is to run it.

        It becomes the best if it is the quickest so far of those that fit, be it in the interpreter.
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
        """Whether it does, be it in the interpreter."""
        self._try(decision)
        found = self._tried[decision]
        return isinstance(found, Forecast) and found.needed <= self._budget

    def _note(self, decision: Decision, found: Forecast | str) -> None:
        self._tried[decision] = found
        self._observer.candidate(Candidate(str(decision), str(decision), known=found))

    def _may_be_best(self, one: Decision) -> bool:
        return self._best is None or self._seconds(one) < self._best[0]

    def _is_near(self, whole: Decision) -> bool:
        """Whether blocks of it are likely to take longer than the best: then that is looked at first."""
        return self._best is not None and self._best[0] < _NEAR * self._seconds(whole)

    def _is_tight(self, whole: Decision, smallest: Decision, freed: int) -> bool:
        """Whether even the smallest blocks hardly fit: then that is looked at first."""
        left = self._known_bytes(whole) - freed
        return max(left, self._unfused_lower_bound(smallest) / _TIGHT) > self._budget

    def _is_slower(self, one: Decision) -> bool:
        """Whether it cannot be the best, by what is known of it or of one that computes nothing again."""
        alike = (self._graphs.known_graph(replace(one, again=way)) for way in (one.again, False))
        known = max((self._quick.get(pdg, 0.0) for pdg in alike if pdg is not None), default=0.0)
        return self._best is not None and known >= self._best[0]

    def _try_blocks(self, whole: Decision) -> None:
        """Try the largest blocks that fit along each dimension."""
        if whole.blocks is None or not self._is_planned(whole):
            return  # nor are blocks planned then, which have more points
        for dim, sizes, freed in self._graphs.block_sizes(whole):
            self._largest(whole, sizes, lambda n, d=dim: _set_block_size(whole, d, n), freed)

    def _swap_blocks(self, whole: Decision) -> None:
        """Blocks and swaps together, where nothing else fits, or all that does takes much longer."""
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
        """Whether it was looked at and does not fit, but for little of what it needs."""
        if one in self._tried and self._try(one):
            return False
        looked_at = one in self._tried or one in self._unscheduled
        return looked_at and self._known_bytes(one) <= (1 + _LITTLE) * self._budget

    def _largest(
        self, whole: Decision, sizes: list[int], decision: Callable[[int], Decision], freed: int
    ) -> None:
        """Find the largest blocks that fit; the smallest that can be planned tell whether any do."""

        def is_planned(size: int) -> bool:
            self._try(decision(size))
            return self._is_planned(decision(size))

        # smaller blocks take longer
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
        if not whole.swap:  # what is known of swaps without planning them is little
            largest = self._pop_largest(sizes, decision)
            if largest is None or self._try(largest) or not sizes:
                return
        if self._may_be_best(decision(sizes[-1])):
            k = bisect(sizes, False, key=is_planned) if not is_planned(sizes[0]) else 0
            if k < len(sizes):
                fits = self._try if self._try(decision(sizes[k])) else self._is_within_budget
                if fits(decision(sizes[k])):
                    bisect(sizes, False, k + 1, key=lambda n: not fits(decision(n)))

    def _pop_largest(
        self, sizes: list[int], decision: Callable[[int], Decision]
    ) -> Decision | None:
        """Take out the largest blocks that may fit, and all larger ones; None if they cannot be the best."""
        if self._best is None:
            bytes_of = [*map(decision, sizes)]
            del sizes[bisect(bytes_of, self._budget, key=self._at_least) :]
            return decision(sizes.pop()) if sizes else None
        while sizes and self._may_be_best(one := decision(sizes.pop())):  # smaller ones are slower
            if self._at_least(one) <= self._budget:
                return one
        return None

    def _is_planned(self, one: Decision) -> bool:
        """Whether it is known what a decision needs, or that this is too much."""
        return isinstance(self._tried[one], Forecast) or self._is_too_much(one)

    def _is_too_much(self, one: Decision) -> bool:
        return self._known_bytes(one) > self._budget

    def _known_bytes(self, one: Decision) -> int:
        """Bytes below which no plan of it comes, as far as somebody has looked."""
        return max(self._floor(one), self._unscheduled.get(one, 0), self._least_of.get(one, 0))

    def _least_memory_decision(self) -> tuple[Search, Decision]:
        """The decision with the lowest memory in this and the other searches, if none fits."""
        searches = [self, *self._relaxed_searches]
        able = [
            (search, one)
            for search in searches
            for one in search._tried
            if one.swap == search._graphs.swaps
        ]
        # a decision's bytes are known better and better: its floor, its bound, its forecast
        queue = [(search._floor(one), rank, 0) for rank, (search, one) in enumerate(able)]
        heapify(queue)
        seen = set[tuple[str, bool]]()  # decisions under other options often make the same graph
        while queue:
            _, rank, known = heappop(queue)
            search, one = able[rank]
            if known == 2:
                return search, one
            if known == 0 and (written := search._graphs.graph_text(one)) is not None:
                if (written, one.swap) in seen:
                    continue
                seen.add((written, one.swap))
            found = search._tried[one]
            if isinstance(found, str) and search._is_too_much(one):
                if known == 0:
                    heappush(queue, (search._scheduled_lower_bound(one), rank, 1))
                    continue
                found = search._tried[one] = search._get_forecast(one)
            if isinstance(found, Forecast):
                heappush(queue, (found.needed, rank, 2))
                search._taken = able[min(entry for entry in queue if entry[2] == 2)[1]][1]
        ways = tuple((dim.name, self._graphs.ways[0]) for dim in self._graphs.dims)
        return self, Decision(ways, self._graphs.again[0], (), swap=False)


def _set_block_size(one: Decision, dim: Dim, size: int) -> Decision:
    return replace(one, blocks=((dim.name, size),))
