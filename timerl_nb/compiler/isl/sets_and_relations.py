"""Integer sets and relations with named dimensions.

isl identifies dimensions by position and considers two sets equal if they differ only in names, so
a mix-up of positions would go unnoticed. The sets and relations here carry names, and every
operation checks them. The bounds of all dimensions are parameters, always in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, reduce
from typing import Any

import islpy as isl

from timerl_nb.compiler.isl.operation_limit import coalesce_pieces, memoize_with_cost, spend
from timerl_nb.compiler.isl.piecewise_affine import Space, points
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Cond,
    Index,
    Lin,
    Slice,
    all_of,
    any_of,
    const,
    eq,
    ge,
    invent_symbol,
    lt,
    maximum,
    minimum,
    pick,
    sym,
)

Point = Mapping[str, int]
_SET, _IN, _OUT = isl.dim_type.set, isl.dim_type.in_, isl.dim_type.out
_PARAM, _DIV = isl.dim_type.param, isl.dim_type.div


def primed_name(name: str) -> str:
    """Return the name of a relation's target dimension inside a condition over both sides."""
    return name + "'"


_VALUE, _LENGTH = invent_symbol("value"), invent_symbol("length")


class Likeness:
    """Key of a set or relation in a cache.

    Its text would serve too, but islpy leaks a copy of every text.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: isl.Set | isl.Map) -> None:
        self.raw: Any = raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Likeness) and self.raw.plain_is_equal(other.raw)


# --- expressions to isl ------------------------------------------------------------------------


# Passes and memory plans request the same sets and relations many times.
@lru_cache(maxsize=50_000)
def _set_of(dims: Dims, domain: Domain, cond: Cond) -> isl.Set:
    inside = dims.range_condition(domain)
    return points(all_of(inside, cond), Space(dims.bounds, domain, inside))


@lru_cache(maxsize=50_000)
def _map_of(
    bounds: tuple[str, ...], left: Domain, right: Domain, cond: Cond, given: Cond = TRUE
) -> isl.Map:
    both = points(cond, Space(bounds, (*left, *right), given))
    return isl.Map.from_range(both).move_dims(_IN, 0, _OUT, 0, len(left))


# --- isl to expressions ------------------------------------------------------------------------


def to_int(value: isl.Val) -> int:
    """Return an isl integer as an int.

    Integers beyond 64 bits are converted as text, slowly and with a small memory leak in islpy.
    """
    short = value.get_num_si()  # 0 if the value does not fit
    return short if short or value.is_zero() else value.to_python()


def _aff_lin(aff: isl.Aff, names: Domain, bounds: tuple[str, ...]) -> tuple[Lin, int]:
    """Return the affine expression times its denominator, and the denominator."""
    scale = to_int(aff.get_denominator_val())
    scaled = aff if scale == 1 else aff.scale_val(isl.Val(scale))
    total = const(to_int(scaled.get_constant_val()))
    for kind, of in ((_IN, names), (_PARAM, bounds)):
        for k, name in enumerate(of):
            coef = to_int(scaled.get_coefficient_val(kind, k))
            if coef:
                total = total + sym(name) * coef
    for k in range(scaled.dim(_DIV)):
        coef = to_int(scaled.get_coefficient_val(_DIV, k))
        if coef:
            # isl's division variables are floors of affine expressions
            inner, by = _aff_lin(scaled.get_div(k), names, bounds)
            total = total + inner // by * coef
    return total, scale


def _aff(aff: isl.Aff, names: Domain, bounds: tuple[str, ...]) -> Lin:
    # functions between integer sets have integer values, so the division is exact
    total, scale = _aff_lin(aff, names, bounds)
    return total if scale == 1 else total // scale


@memoize_with_cost
def _set_cond(s: isl.Set, names: Domain, bounds: tuple[str, ...]) -> Cond:
    options: list[Cond] = []
    simple = spend(isl.Set.compute_divs, coalesce_pieces(s))
    for basic in simple.get_basic_sets():
        conds: list[Cond] = []
        for constraint in basic.get_constraints():
            e, _ = _aff_lin(constraint.get_aff(), names, bounds)
            if constraint.is_div_constraint():
                continue
            conds.append(eq(e, 0) if constraint.is_equality() else ge(e, 0))
        options.append(all_of(*conds))
    return any_of(*options)


@memoize_with_cost
def pw_expression(pw: isl.PwAff, names: Domain, bounds: tuple[str, ...]) -> Lin:
    """Return a piecewise affine function of the named dimensions as one expression."""
    pieces: list[tuple[isl.Set, isl.Aff]] = []
    few: isl.PwAff = pw if pw.n_piece() == 1 else coalesce_pieces(pw)
    few.foreach_piece(lambda s, a: pieces.append((s, a)))
    lins = [_aff(a, names, bounds) for _, a in pieces]
    if len(lins) == 1:
        return lins[0]
    distinct = dict(zip(lins, (isl.PwAff.from_aff(aff) for _, aff in pieces), strict=True))
    extremum = _as_extremum(pw, distinct) if len(distinct) <= _MOST_PIECES else None
    if extremum is not None:
        return extremum
    remaining = pw.domain()
    result = lins[-1]
    for (piece, _), value in list(zip(pieces, lins, strict=True))[:-1]:
        where = spend(isl.Set.gist, piece, remaining)
        result = pick(_set_cond(where, names, bounds), value, result)
    return result


_MOST_PIECES = 8  # a function with more pieces is not tested for being a minimum or maximum


def _as_extremum(pw: isl.PwAff, pieces: Mapping[Lin, isl.PwAff]) -> Lin | None:
    """Return the function as one of its pieces, or as a minimum or maximum of several, or None.

    Special cases (such as T = 4) produce pieces that a minimum or maximum covers as well.
    """
    whole = pw.domain()
    for lin, piece in pieces.items():
        if _is_equal(piece, whole, pw):
            return lin
    for join, joined in ((isl.PwAff.max, maximum), (isl.PwAff.min, minimum)):
        # An argument of a maximum must not exceed the function anywhere; likewise for a minimum.
        chosen = {e: p for e, p in pieces.items() if _is_equal(spend(join, p, pw), whole, pw)}

        def is_covering(of: Mapping[Lin, isl.PwAff], join: Any = join) -> bool:
            return bool(of) and _is_equal(
                reduce(lambda a, b: spend(join, a, b), of.values()), whole, pw
            )

        if not is_covering(chosen):
            continue
        for lin in reversed(list(chosen)):
            fewer = {e: p for e, p in chosen.items() if e is not lin}
            if is_covering(fewer):
                chosen = fewer
        return joined(*chosen)
    return None


def _is_equal(function: isl.PwAff, on: isl.Set, other: isl.PwAff) -> bool:
    return spend(isl.PwAff.is_equal, spend(isl.PwAff.intersect_domain, function, on), other)


# --- sets --------------------------------------------------------------------------------------


class Set:
    """Points of a domain that satisfy a condition."""

    def __init__(self, dims: Dims, domain: Domain, raw: isl.Set) -> None:
        self.dims, self.domain, self.raw = dims, domain, raw

    @classmethod
    def from_condition(cls, dims: Dims, domain: Domain, cond: Cond = TRUE) -> Set:
        """Return { domain : 0 <= d < D for each dimension, and cond }."""
        return cls(dims, domain, _set_of(dims, domain, cond))

    def _wrap(self, raw: isl.Set) -> Set:
        return Set(self.dims, self.domain, raw)

    def _check_operand(self, other: Set) -> isl.Set:
        if other.domain != self.domain:
            raise AssertionError(f"sets over {self.domain} and {other.domain}")
        return other.raw

    def __and__(self, other: Set) -> Set:
        return self._wrap(spend(isl.Set.intersect, self.raw, self._check_operand(other)))

    def __or__(self, other: Set) -> Set:
        both = spend(isl.Set.union, self.raw, self._check_operand(other))
        return self._wrap(coalesce_pieces(both))

    def __sub__(self, other: Set) -> Set:
        return self._wrap(spend(isl.Set.subtract, self.raw, self._check_operand(other)))

    def is_empty(self) -> bool:
        return bool(spend(isl.Set.is_empty, self.raw))

    def exists_with(self, other: Set) -> bool:
        """Return whether some bounds make both sets nonempty."""
        both = (spend(isl.Set.params, one.raw) for one in (self, other))
        return not spend(isl.Set.is_empty, spend(isl.Set.intersect, *both))

    def with_bounds(self, bounds: Point, least: int = 1) -> Set:
        """Return the set under actual bounds; bounds without a value are at least `least`."""
        known = bounds_set(self.dims, bounds, least)
        return self._wrap(spend(isl.Set.intersect_params, self.raw, known))

    def sample(self) -> dict[str, int] | None:
        """Return one point as a value per name, or None for an empty set.

        The result includes the dynamic bounds at the point.
        """
        if self.is_empty():
            return None
        point = spend(isl.Set.sample_point, self.raw)
        found = {
            name: to_int(point.get_coordinate_val(_SET, k)) for k, name in enumerate(self.domain)
        }
        return found | _length(self.dims, point)

    def sample_under_bounds(self) -> dict[str, int] | None:
        """Return one point together with bounds for which it is in the set, or None."""
        found = self.sample()
        if found is None:
            return None
        point = self.raw.sample_point()
        bounds = {
            name: to_int(point.get_coordinate_val(_PARAM, k))
            for k, name in enumerate(self.dims.bounds)
        }
        return found | bounds

    # --- dynamic bounds --------------------------------------------------------------------------

    def at_some_length(self, of: Sequence[Dim] | None = None) -> Set:
        """Return the points in the set for at least one value of dynamic bounds.

        The symbols of the bounds then mean the ceilings.

        Args:
            of: the dimensions of these bounds; all by default.
        """
        return self._wrap(_at_some_length(self.raw, self.dims, of))

    def at_every_length(self, of: Sequence[Dim] | None = None) -> Set:
        """Return the points in the set for all values of dynamic bounds up to the ceilings.

        Args:
            of: the dimensions of these bounds; all by default.
        """
        if not (self.dims.dynamic if of is None else of):
            return self
        outside = _at_some_length(spend(isl.Set.complement, self.raw), self.dims, of)
        return self._wrap(spend(isl.Set.complement, outside))

    def points(self, bounds: Point) -> Iterator[tuple[int, ...]]:
        """Return all points under actual bounds, in lexicographic order."""
        found: list[tuple[int, ...]] = []
        n = len(self.domain)
        raw = self.with_bounds(bounds).raw.project_out(_PARAM, 0, len(self.dims.bounds))
        raw.foreach_point(
            lambda p: found.append(tuple(to_int(p.get_coordinate_val(_SET, k)) for k in range(n)))
        )
        return iter(sorted(found))

    def condition(self, given: Set | None = None) -> Cond:
        """Return a condition that defines the set among the points of `given`."""
        raw = self.raw
        if given is not None:
            raw = spend(isl.Set.gist, raw, self._check_operand(given))
        return _set_cond(raw, self.domain, self.dims.bounds)

    def bounds(self, name: str) -> tuple[Lin, Lin]:
        """Return the smallest and largest value of one dimension, as expressions of the bounds."""
        k = self.domain.index(name)
        of = self.dims.bounds
        return (
            pw_expression(spend(isl.Set.dim_min, self.raw, k), (), of),
            pw_expression(spend(isl.Set.dim_max, self.raw, k), (), of),
        )

    def greatest(self, e: Lin, bounds: Point) -> int:
        """Return the largest value of an expression over the set under actual bounds.

        It is 0 for an empty set.
        """
        value = _map_of(self.dims.bounds, self.domain, (_VALUE,), eq(sym(_VALUE), e))
        image = spend(isl.Set.apply, self.with_bounds(bounds).raw, value)
        if image.is_empty():
            return 0
        return to_int(spend(isl.Set.dim_max_val, image, 0))

    @property
    def identity_key(self) -> Likeness:
        """A cache key, equal for sets with the same isl representation."""
        return Likeness(self.raw)

    def __str__(self) -> str:
        return str(self.raw)


def bounds_set(dims: Dims, bounds: Point, least: int = 1) -> isl.Set:
    """Return the parameter set with the given bounds fixed and the others at least `least`.

    A dynamic bound ranges from 1 to the given value, its ceiling.
    """
    bounds = {**dims.values, **bounds}
    conds = [eq(sym(n), bounds[n]) if n in bounds else ge(sym(n), least) for n in dims.bounds]
    for name in (dim.bound for dim in dims.dynamic if dim.bound in bounds):
        conds[dims.bounds.index(name)] = all_of(
            ge(sym(name), 1), ge(const(bounds[name]), sym(name))
        )
    return _params_set(dims, all_of(*conds))


def ceilings_set(dims: Dims, bounds: Point) -> isl.Set:
    """Return the parameter set with all bounds fixed, dynamic ones at their ceilings."""
    return _params_set(dims, all_of(*(eq(sym(n), bounds[n]) for n in dims.bounds)))


@lru_cache(maxsize=1_000)
def _params_set(dims: Dims, cond: Cond) -> isl.Set:
    return points(cond, Space(dims.bounds, ())).params()


def _length(dims: Dims, point: isl.Point) -> dict[str, int]:
    """Return the dynamic bounds at a sample point."""
    names = (dim.bound for dim in dims.dynamic)
    return {n: to_int(point.get_coordinate_val(_PARAM, dims.bounds.index(n))) for n in names}


def _at_some_length(raw: Any, dims: Dims, of: Sequence[Dim] | None = None) -> Any:
    """Return { x : x in raw for some lengths from 1 to the ceilings }, of a set or a map."""
    kind: Any = type(raw)
    for bound in (dim.bound for dim in (dims.dynamic if of is None else of)):
        raw = raw.set_dim_name(_PARAM, dims.bounds.index(bound), _LENGTH)
        within = all_of(ge(sym(_LENGTH), 1), ge(sym(bound), sym(_LENGTH)))
        upto = points(within, Space((_LENGTH, bound), ())).params()
        raw = spend(kind.intersect_params, raw, upto)
        raw = spend(kind.project_out, raw, _PARAM, raw.find_dim_by_name(_PARAM, _LENGTH), 1)
        raw = raw.align_params(_params_set(dims, TRUE).get_space())
    return raw


# --- relations ---------------------------------------------------------------------------------


class Relation:
    """Pairs of points: of a source domain `left` and of a target domain `right`."""

    def __init__(self, dims: Dims, left: Domain, right: Domain, raw: isl.Map) -> None:
        self.dims, self.left, self.right, self.raw = dims, left, right, raw

    @classmethod
    def from_condition(cls, dims: Dims, left: Domain, right: Domain, cond: Cond) -> Relation:
        """Return the pairs that satisfy `cond`. Names of right dimensions are primed in `cond`."""
        return cls(
            dims, left, right, _map_of(dims.bounds, left, tuple(map(primed_name, right)), cond)
        )

    @classmethod
    def reads(cls, sink: Set, index: Index, source: Set) -> Relation:
        """Return the source points that each sink point reads through `index`.

        The source points are not restricted to `source`.
        """
        conds: list[Cond] = []
        for name, entry in zip(source.domain, index, strict=True):
            to = sym(primed_name(name))
            if isinstance(entry, Slice):
                conds += [ge(to, entry.lo), lt(to, entry.hi)]
            else:
                conds.append(eq(to, entry))
        dims, right = sink.dims, tuple(map(primed_name, source.domain))
        given = dims.range_condition(sink.domain)
        raw = _map_of(dims.bounds, sink.domain, right, all_of(*conds), given)
        raw = spend(isl.Map.intersect_domain, raw, sink.raw)
        return cls(dims, sink.domain, source.domain, raw)

    def _wrap(self, raw: isl.Map) -> Relation:
        return Relation(self.dims, self.left, self.right, raw)

    def _check_operand(self, other: Relation) -> isl.Map:
        if (other.left, other.right) != (self.left, self.right):
            raise AssertionError(f"{self.left}->{self.right} and {other.left}->{other.right}")
        return other.raw

    def __and__(self, other: Relation) -> Relation:
        return self._wrap(spend(isl.Map.intersect, self.raw, self._check_operand(other)))

    def __or__(self, other: Relation) -> Relation:
        both = spend(isl.Map.union, self.raw, self._check_operand(other))
        return self._wrap(coalesce_pieces(both))

    def __sub__(self, other: Relation) -> Relation:
        return self._wrap(spend(isl.Map.subtract, self.raw, self._check_operand(other)))

    def is_empty(self) -> bool:
        return bool(spend(isl.Map.is_empty, self.raw))

    def with_bounds(self, bounds: Point, least: int = 1) -> Relation:
        known = bounds_set(self.dims, bounds, least)
        return self._wrap(spend(isl.Map.intersect_params, self.raw, known))

    def with_least_bounds(self, least: int) -> Relation:
        """Return the relation for bounds of at least `least`."""
        large = _params_set(self.dims, all_of(*(ge(sym(n), least) for n in self.dims.bounds)))
        return self._wrap(spend(isl.Map.intersect_params, self.raw, large))

    def restrict_domain(self, left: Set) -> Relation:
        """Return the pairs with a source in `left`."""
        if left.domain != self.left:
            raise AssertionError(f"domain {self.left} cut with {left.domain}")
        return self._wrap(spend(isl.Map.intersect_domain, self.raw, left.raw))

    def restrict_range(self, right: Set) -> Relation:
        """Return the pairs with a target in `right`."""
        if right.domain != self.right:
            raise AssertionError(f"range {self.right} cut with {right.domain}")
        return self._wrap(spend(isl.Map.intersect_range, self.raw, right.raw))

    def subtract_range(self, right: Set) -> Relation:
        """Return the pairs with a target outside `right`."""
        return self - self.restrict_range(right)

    def inverse(self) -> Relation:
        return Relation(self.dims, self.right, self.left, spend(isl.Map.reverse, self.raw))

    def then(self, other: Relation) -> Relation:
        """Return the pairs (a, c) with (a, b) in this relation and (b, c) in the other."""
        if self.right != other.left:
            raise AssertionError(f"{self.right} does not meet {other.left}")
        raw = spend(isl.Map.apply_range, self.raw, other.raw)
        return Relation(self.dims, self.left, other.right, raw)

    def domain(self) -> Set:
        return Set(self.dims, self.left, spend(isl.Map.domain, self.raw))

    def range(self) -> Set:
        return Set(self.dims, self.right, spend(isl.Map.range, self.raw))

    def is_injective(self) -> bool:
        return bool(spend(isl.Map.is_injective, self.raw))

    def sample(self) -> tuple[dict[str, int], dict[str, int]] | None:
        """Return one pair, each side as a value per name; None for an empty relation."""
        if self.is_empty():
            return None
        point = spend(isl.Set.sample_point, self.raw.wrap())
        values = [
            to_int(point.get_coordinate_val(_SET, k))
            for k in range(len(self.left) + len(self.right))
        ]
        cut = len(self.left)
        return (
            dict(zip(self.left, values[:cut], strict=True)) | _length(self.dims, point),
            dict(zip(self.right, values[cut:], strict=True)),
        )

    def disjoint_parts(self) -> list[Relation]:
        """Return disjoint parts, each defined by one conjunction of constraints."""
        apart = spend(isl.Map.make_disjoint, coalesce_pieces(spend(isl.Map.compute_divs, self.raw)))
        return [self._wrap(isl.Map.from_basic_map(one)) for one in apart.get_basic_maps()]

    def box(self) -> Relation:
        """Return, for each left point, the bounding box of its right points."""
        return self._wrap(_box(self.raw))

    def bounds(self, name: str) -> tuple[Lin, Lin]:
        """Return the smallest and largest value of one right dimension.

        Both are expressions of the left point.
        """
        k = self.right.index(name)
        of = self.dims.bounds
        low = pw_expression(spend(isl.Map.dim_min, self.raw, k), self.left, of)
        return low, pw_expression(spend(isl.Map.dim_max, self.raw, k), self.left, of)

    @cached_property
    def is_single_valued(self) -> bool:
        """Whether each left point has at most one right point."""
        return bool(spend(isl.Map.is_single_valued, self.raw))

    @cached_property
    def pieces(self) -> Sequence[tuple[Cond, tuple[Lin, ...]]]:
        """A single-valued relation as functions: pairs of a condition and the right point."""
        return _pieces(self.raw, self.left, self.dims.bounds)

    # --- dynamic bounds --------------------------------------------------------------------------

    def at_some_length(self, of: Sequence[Dim] | None = None) -> Relation:
        """Return the pairs for at least one value of dynamic bounds.

        The symbols of the bounds then mean the ceilings.

        Args:
            of: the dimensions of these bounds; all by default.
        """
        return self._wrap(_at_some_length(self.raw, self.dims, of))

    def decided_at(self, dim: Dim) -> Relation:
        """Return left point -> the last point of a dynamic dimension at which its end matters.

        For some values of the other dynamic bounds, an end at this point gives other right points
        than an end at the ceiling. Ends after it make no difference. Left points are omitted if their
        right points do not depend on the length.

        Args:
            dim: the dynamic dimension.
        """
        n, params = len(self.left), _params_set(self.dims, TRUE).get_space()
        within = all_of(ge(sym(_LENGTH), 1), lt(sym(_LENGTH), sym(dim.bound)))
        early = points(within, Space(self.dims.bounds, (*self.left, _LENGTH)))
        ended = self.raw.move_dims(_IN, n, _PARAM, self.dims.bounds.index(dim.bound), 1)
        ended = _anonymous_in(ended.align_params(params)).intersect_domain(early)
        going = _anonymous_in(self.raw.insert_dims(_IN, n, 1)).intersect_domain(early)
        parts = spend(isl.Map.subtract, ended, going), spend(isl.Map.subtract, going, ended)
        one, two = (spend(isl.Map.domain, part) for part in parts)
        others = [other for other in self.dims.dynamic if other.name != dim.name]
        early_ends = _at_some_length(spend(isl.Set.union, one, two), self.dims, others)
        differ = isl.Map.from_domain(early_ends)
        last = spend(isl.Map.lexmax, differ.move_dims(_OUT, 0, _IN, n, 1))
        before = eq(sym(_VALUE), sym(_LENGTH) - 1)
        shift = _map_of(self.dims.bounds, (_LENGTH,), (_VALUE,), before)
        return Relation(self.dims, self.left, (dim.name,), _anonymous_in(last).apply_range(shift))

    def pair_targets(self, other: Relation, right: Domain) -> Relation:
        """Return left point -> pairs of right points of this and the other relation.

        The coordinates of a pair are ordered as `right`.
        """
        both = (*self.right, *other.right)
        pairs = self.raw.flat_range_product(other.raw)
        order = Relation.from_condition(
            self.dims, both, right, all_of(*(eq(sym(primed_name(d)), sym(d)) for d in right))
        )
        return Relation(self.dims, self.left, right, spend(isl.Map.apply_range, pairs, order.raw))

    def lexmax(self) -> Relation:
        """Return the lexicographically last right point of each left point."""
        return self._wrap(spend(isl.Map.lexmax, self.raw))

    @property
    def identity_key(self) -> Likeness:
        """A cache key, equal for relations with the same isl representation."""
        return Likeness(self.raw)

    def __str__(self) -> str:
        return str(self.raw)


@memoize_with_cost
def _box(raw: isl.Map) -> isl.Map:
    m = raw.dim(_OUT)
    total = isl.Map.from_domain(spend(isl.Map.domain, raw)).add_dims(_OUT, m)
    for k in range(m):
        rest = spend(isl.Map.project_out, raw, _OUT, k + 1, m - k - 1)
        one = spend(isl.Map.project_out, rest, _OUT, 0, k)
        line = one.range().get_space().map_from_set()
        upto, beyond = isl.Map.universe(line), isl.Map.universe(line)
        upto = upto.order_le(_IN, 0, _OUT, 0)
        beyond = beyond.order_ge(_IN, 0, _OUT, 0)
        ends = (coalesce_pieces(spend(isl.Map.apply_range, one, to)) for to in (upto, beyond))
        between = spend(isl.Map.intersect, *ends)
        between = between.insert_dims(_OUT, 0, k).add_dims(_OUT, m - k - 1)
        total = spend(isl.Map.intersect, total, between)
    return total


@memoize_with_cost
def _pieces(
    raw: isl.Map, left: Domain, bounds: tuple[str, ...]
) -> Sequence[tuple[Cond, tuple[Lin, ...]]]:
    pieces: list[tuple[isl.Set, isl.MultiAff]] = []
    function = spend(isl.PwMultiAff.from_map, spend(isl.Map.compute_divs, raw))
    function.foreach_piece(lambda where, to: pieces.append((where, to)))
    return tuple(
        (
            _set_cond(where, left, bounds),
            tuple(_aff(to.get_aff(k), left, bounds) for k in range(raw.dim(_OUT))),
        )
        for where, to in pieces
    )


def _anonymous_in(raw: isl.Map) -> isl.Map:
    return raw.reset_tuple_id(_IN)


def union(relations: Iterable[Relation]) -> Relation | None:
    """Return the union of relations between the same domains; None without any."""
    total: Relation | None = None
    for relation in relations:
        total = relation if total is None else total | relation
    return total
