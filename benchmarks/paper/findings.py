"""Findings of the paper's section 8, each with its published figure, ours and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import geometric_mean
from typing import Final

import numpy as np

import timerl_nb as trl
from benchmarks.finding import Finding, Verdict
from benchmarks.paper.model import REFERENCE
from benchmarks.paper.rows import Results

TIME: Final = {"quantity": "iteration time", "source": "measured"}
GIB: Final = 2**30
LARGEST: Final = "largest observation shape that fits into memory"
UNPLANNED: Final = "nothing was planned"
CACHE_BLOCKS: Final = "blocks that fit the cache of a CPU also save time"
PEERS: Final = ("PyTorch", "PyTorch, cached", "Stable-Baselines3", "jitted")


def findings(rows: Results) -> list[Finding]:
    """Return one row per finding, in the order of the paper."""
    return [function(rows) for function in FUNCTIONS]


def _finding(
    number: str, what: str, paper: str, ours: str, verdict: bool | Verdict, because: str = ""
) -> Finding:
    """Return a finding; a truth value is a verdict, and the reason then explains a contradiction only."""
    if isinstance(verdict, bool):
        because = "" if verdict else because
        verdict = "holds" if verdict else "does not hold"
    return Finding(number, what, ours, "", paper, verdict, "", because)


def _unmeasured(number: str, what: str, paper: str, because: str = "no peer ran") -> Finding:
    return _finding(number, what, paper, "–", "not measured", because)


def _published(quantity: str, section: str = "8.2", **cells: str) -> str:
    """Return a number of the paper's text, with its relation unless it is exact."""
    table = trl.datasets.load("published/timerl")
    (row,) = table.where(quantity=quantity, section=section, **cells)
    relation = "" if row["relation"] == "=" else f"{row['relation']} "
    return f"{relation}{row['value']}"


def ratios(rows: Results, system: str, other: str) -> dict[tuple[str, float], float]:
    """Return the time of one system over another's, by axis and value."""
    found: dict[tuple[str, float], float] = {}
    for row in rows.where(figure="fig9", system=system, **TIME):
        beside = rows.value(figure="fig9", axis=row.axis, x=row.x, system=other, **TIME)
        if beside is not None:
            found[row.axis, row.x] = row.value / beside
    return found


def _speed_ups(rows: Results, axis: str, system: str = "ours") -> dict[float, float]:
    """Return a system's speed-up over PyTorch along an axis."""
    found = ratios(rows, "PyTorch", system).items()
    return {x: ratio for (name, x), ratio in sorted(found) if name == axis}


def _range(values: Mapping[tuple[str, float], float]) -> str:
    mean = geometric_mean(values.values())
    return f"{mean:.2f} [{min(values.values()):.2f} to {max(values.values()):.2f}]"


def _ends(curve: Mapping[float, float]) -> str:
    (x, first), *_, (y, last) = curve.items()
    return f"speed-up over PyTorch {first:.2f} at {x:g}, {last:.2f} at {y:g}"


# --- §8.2, Fig. 9 ----------------------------------------------------------------------------------


def always_faster(rows: Results) -> Finding:
    what = "our iterations take less time than every other system's, in every cell"
    ours = {
        (peer, *cell): 1 / ratio
        for peer in PEERS
        for cell, ratio in ratios(rows, peer, "ours").items()
    }
    if not ours:
        return _unmeasured("9.1", what, "in all cells")
    faster = sum(ratio < 1 for ratio in ours.values())
    peer, axis, x = max(ours, key=lambda cell: ours[cell])
    because = f"{peer} takes {1 / ours[peer, axis, x]:.2f} of our time at {axis} = {x:g}"
    text = f"faster in {faster} of {len(ours)} comparisons"
    return _finding("9.1", what, "in all cells", text, faster == len(ours), because)


def faster_than_cleanrl(rows: Results) -> Finding:
    what = "mean speed-up over a single-file PyTorch script"
    paper = _published("speed-up", condition="baseline=CleanRL")
    found = ratios(rows, "PyTorch", "ours")
    if not found:
        return _unmeasured("9.2", what, paper)
    holds = geometric_mean(found.values()) >= float(paper.split()[-1])
    return _finding("9.2", what, paper, _range(found), holds, "the mean is smaller here")


def faster_than_rllib(rows: Results) -> Finding:
    paper = _published("speed-up", condition="baseline=RLlib")
    return _unmeasured("9.3", "speed-up over RLlib", paper, "RLlib is not run")


def linear_in_steps(rows: Results) -> Finding:
    what = "iteration time grows linearly with the episode length"
    curve = rows.curve(figure="fig9", axis="steps", system="ours", **TIME)
    if len(curve) < 3:
        return _unmeasured("9.4", what, "all systems", "too few cells ran")
    fit = _linearity(curve)
    return _finding("9.4", what, "all systems", f"R² = {fit:.3f} for ours", fit > 0.98)


def narrowing_with_steps(rows: Results) -> Finding:
    what = "longer episodes narrow the relative differences"
    why = "the differences grow here; the cause was not examined"
    return _compare_ends(rows, "9.5", what, "slightly", "steps", why, grows=False)


def _compare_ends(
    rows: Results, number: str, what: str, paper: str, axis: str, because: str, *, grows: bool
) -> Finding:
    """Return a finding about the speed-up over PyTorch at both ends of an axis."""
    found = _speed_ups(rows, axis)
    if len(found) < 2:
        return _unmeasured(number, what, paper)
    first, *_, last = found.values()
    return _finding(number, what, paper, _ends(found), (last > first) == grows, because)


def blocks_by_width(rows: Results) -> Finding:
    what = "parameters per layer from which the compiler runs learning in blocks, or computes values again"
    paper = _published(
        "parameters per layer at which incrementalisation of the backward pass begins"
    )
    at_size = rows.only(lambda row: row.condition.startswith("envs=512"))
    curve = at_size.curve(figure="fig9", axis="width", system="ours", quantity="memory measures")
    first = next((width for width, count in curve.items() if count), None)
    if first is None:
        return _finding("9.6", what, paper, "never", "undecided", "no plan has such measures")
    return _finding("9.6", what, paper, f"{first:g}", first == float(paper), CACHE_BLOCKS)


def slower_with_layers(rows: Results) -> Finding:
    what = "many hidden layers slow down ours more than other systems"
    curves = {s: _speed_ups(rows, "layers", s) for s in ("ours", "ours, interpreted")}
    if any(len(found) < 2 for found in curves.values()):
        return _unmeasured("9.7", what, "in particular TimeRL")
    text = "; ".join(f"{system}: {_ends(found)}" for system, found in curves.items())
    first, *_, last = curves["ours"].values()
    why = "the difference shrinks here"
    return _finding("9.7", what, "in particular TimeRL", text, last < first, why)


def better_with_envs(rows: Results) -> Finding:
    what = "more environments improve our relative performance"
    why = "the script's overhead of a call weighs most in small batches"
    return _compare_ends(rows, "9.8", what, "improves", "envs", why, grows=True)


def utilisation(rows: Results) -> Finding:
    what = "mean utilisation of the device is higher than other systems'"
    means = {
        system: float(np.mean([row.value for row in chosen]))
        for system in ("ours", *PEERS)
        if (chosen := rows.where(figure="fig9", system=system, quantity="utilisation"))
    }
    if len(means) < 2:
        return _unmeasured("9.9", what, "on average")
    text = ", ".join(f"{system} {100 * value:.0f} %" for system, value in means.items())
    why = "threads of PyTorch count as busy while they spin, and jitted computes the forward pass twice"
    return _finding("9.9", what, "on average", text, means["ours"] == max(means.values()), why)


def utilisation_by_width(rows: Results) -> Finding:
    what = "utilisation grows with the width more than other systems'"
    found: dict[str, float] = {}
    for system in ("ours", *PEERS):
        curve = rows.curve(figure="fig9", axis="width", system=system, quantity="utilisation")
        if len(curve) > 1:
            first, *_, last = curve.values()
            found[system] = last - first
    if len(found) < 2:
        return _unmeasured("9.10", what, "far more")
    text = ", ".join(f"{system} {100 * growth:+.0f} points" for system, growth in found.items())
    why = "another system's grows more"
    return _finding("9.10", what, "far more", text, found["ours"] == max(found.values()), why)


def cached_is_slower(rows: Results) -> Finding:
    what = "cached activations slow down a PyTorch script"
    paper = f"{_published('slow-down of iteration time')} %"
    found = ratios(rows, "PyTorch, cached", "PyTorch")
    if not found:
        return _unmeasured("9.11", what, paper)
    slower = geometric_mean(found.values()) > 1
    text = f"{_range(found)} of its time"
    why = "without a GPU, the saved forward pass is worth more than the graphs of all steps cost"
    return _finding("9.11", what, paper, text, slower, why)


# --- §8.3, Fig. 10 ---------------------------------------------------------------------------------


def _fig10(rows: Results, system: str, quantity: str) -> dict[float, float]:
    chosen = rows.where(figure="fig10", axis="width", system=system, quantity=quantity)
    at_size = chosen.only(lambda row: row.condition.startswith("envs=256; steps=1000"))
    return at_size.only(lambda row: "budget=40" not in row.condition).curve()


def _shape(width: float) -> str:
    return f"3x{width:g}x{width:g}"


def others_fail(rows: Results) -> Finding:
    what = "largest observation of actor-learner systems within 48 GiB"
    need = _fig10(rows, REFERENCE, "peak memory")
    paper = _published(LARGEST, "8.3", system="other baselines")
    if not need:
        return _unmeasured("10.1", what, paper, UNPLANNED)
    fits = max(width for width, count in need.items() if count <= 48 * GIB)
    text = f"{_shape(fits)}, which needs at least {need[fits] / GIB:.0f} GiB"
    why = "" if _shape(fits) == paper else "the formula is a lower limit without copies"
    return _finding("10.1", what, paper, text, "predicted only", why)


def ours_scales(rows: Results) -> Finding:
    what = "largest observation of ours within 48 GiB"
    paper = _published(LARGEST, "8.3", system="TimeRL")
    device, host = (_fig10(rows, "ours", f"{where} memory") for where in ("peak", "host"))
    if not device:
        return _unmeasured("10.2", what, paper, UNPLANNED)
    last = max(device)
    text = f"{_shape(last)}: {device[last] / GIB:.1f} GiB on the device, {host[last] / GIB:.1f} GiB on the host"
    return _finding("10.2", what, paper, text, "predicted only")


def blocks_begin(rows: Results) -> Finding:
    what = "observation after which learning runs in blocks"
    paper = _published("observation shape after which incrementalisation is used", "8.3")
    blocks = _fig10(rows, "ours", "block")
    if not blocks:
        return _unmeasured("10.3", what, paper, UNPLANNED)
    whole = [width for width, steps in blocks.items() if not steps]
    text = _shape(max(whole)) if whole else "in blocks at all sizes"
    return _finding("10.3", what, paper, text, "predicted only", CACHE_BLOCKS)


def swapping_begins(rows: Results) -> Finding:
    what = "observation after which values are swapped to the host"
    paper = _published("observation shape after which swapping is used", "8.3")
    swaps = _fig10(rows, "ours", "swapped tensors")
    if not swaps:
        return _unmeasured("10.4", what, paper, UNPLANNED)
    largest = max(width for width, count in swaps.items() if not count)
    return _finding("10.4", what, paper, _shape(largest), "predicted only")


def bytes_as_predicted(rows: Results) -> Finding:
    what = (
        "predicted bytes of scaled programs equal the measured ones, on the device and on the host"
    )
    chosen = rows.where(system="ours, interpreted", figure="fig10")
    pairs = [
        (row.value, chosen.value(x=row.x, quantity=row.quantity, source="measured"))
        for row in chosen.where(source="predicted")
    ]
    if not pairs:
        return _unmeasured("10.5", what, "–", "nothing ran")
    equal = sum(a == b for a, b in pairs)
    return _finding("10.5", what, "–", f"{equal} of {len(pairs)} equal", equal == len(pairs))


# --- §8.4, Fig. 11, and compile times --------------------------------------------------------------


def _fig11(rows: Results, quantity: str, source: str = "predicted") -> dict[str, float]:
    """Return values by program: predictions at the paper's size, measurements at any size."""
    chosen = rows.where(figure="fig11b", quantity=quantity, source=source)
    return {
        row.system: row.value
        for row in chosen
        if source == "measured" or row.condition.startswith("envs=256; steps=1000")
    }


def _listed(values: Mapping[str, float], scale: float, unit: str) -> str:
    return ", ".join(f"{name} {value / scale:.3g} {unit}" for name, value in values.items())


def monte_carlo_swaps(rows: Results) -> Finding:
    what = "Monte Carlo moves observations to the host, n-step returns do not"
    host = _fig11(rows, "host memory")
    if not host:
        return _unmeasured("11.1", what, "yes", UNPLANNED)
    holds = [name for name, count in host.items() if count] == ["Monte Carlo"]
    text = _listed(host, GIB, "GiB")
    return _finding("11.1", what, "yes", text, "predicted only" if holds else False)


def n_step_memory(rows: Results) -> Finding:
    what = "memory on the device grows with n"
    peak, paper = _fig11(rows, "peak memory"), "only the last n observations"
    if not peak:
        return _unmeasured("11.2", what, paper, UNPLANNED)
    holds = all(a < b for a, b in pairwise(peak.values()))
    text = _listed(peak, GIB, "GiB")
    return _finding("11.2", what, paper, text, "predicted only" if holds else False)


def overlap(rows: Results) -> Finding:
    what = "fraction of acting steps with learning alongside, in the schedule"
    found = _fig11(rows, "acting steps alongside learning")
    paper = "all but the first n; none for Monte Carlo"
    if not found:
        return _unmeasured("11.3", what, paper, UNPLANNED)
    *windows, whole = found.values()
    holds = whole == 0 < min(windows) and windows == sorted(windows, reverse=True)
    text = _listed(found, 0.01, "%")
    return _finding("11.3", what, paper, text, holds)


def faster_with_small_n(rows: Results) -> Finding:
    what = "a smaller n gives shorter iterations"
    predicted, measured = (_fig11(rows, "iteration time", s) for s in ("predicted", "measured"))
    text = f"predicted: {_listed(predicted, 1, 's')}"
    if not predicted:
        return _unmeasured("11.4", what, "yes", UNPLANNED)
    if not measured:
        return _finding("11.4", what, "yes", text, "predicted only")
    first, *_, last = measured.values()
    why = f"8-step takes {first / last:.2f} of Monte Carlo's time, but the other times do not follow n"
    text = f"measured, scaled down: {_listed(measured, 1, 's')}; {text}"
    ordered = all(a < b for a, b in pairwise(measured.values()))
    return _finding("11.4", what, "yes", text, ordered, why)


def compile_time(rows: Results) -> Finding:
    what = "compile time grows linearly with the number of layers"
    curve = rows.curve(figure="tables", axis="layers", quantity="compile time")
    if len(curve) < 3:
        return _unmeasured("T.1", what, "–", "nothing was compiled")
    fit = _linearity(curve)
    text = f"R² = {fit:.3f}; {min(curve.values()):.2f} s to {max(curve.values()):.2f} s"
    return _finding("T.1", what, "–", text, fit > 0.95)


def _linearity(curve: Mapping[float, float]) -> float:
    """Return the squared correlation of a curve with a straight line."""
    return float(np.corrcoef(list(curve), list(curve.values()))[0, 1] ** 2)


FUNCTIONS: Final[tuple[Callable[[Results], Finding], ...]] = (
    always_faster,
    faster_than_cleanrl,
    faster_than_rllib,
    linear_in_steps,
    narrowing_with_steps,
    blocks_by_width,
    slower_with_layers,
    better_with_envs,
    utilisation,
    utilisation_by_width,
    cached_is_slower,
    others_fail,
    ours_scales,
    blocks_begin,
    swapping_begins,
    bytes_as_predicted,
    monte_carlo_swaps,
    n_step_memory,
    overlap,
    faster_with_small_n,
    compile_time,
)
