"""Functions as policies: NumPy functions, PyTorch modules and pure JAX functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.collecting.batch import check_names
from timerl_nb.collecting.policies.collecting_policy import (
    STATE,
    Acted,
    Acting,
    CarriedState,
    MaskArgument,
    OnHost,
    StepFeedback,
    Written,
    nothing_follows,
    own,
)
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.iteration_inputs import given
from timerl_nb.compiler.language.inputs.jax_functions import jaxed, name_of
from timerl_nb.compiler.language.inputs.tensor_sources import constant, random_bits, tensor
from timerl_nb.compiler.language.policy.policy_in_program import carry_state
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.action_masks import NAME
from timerl_nb.runtime.jax_backend import graph_function as graph


@dataclass(frozen=True)
class HostFunction(Acting):
    """NumPy function of the observations of all environments; it has no weights as arguments."""

    function: Callable[..., Any]
    mask: MaskArgument = field(default=MaskArgument(), kw_only=True)
    writes: ClassVar[bool] = True

    @property
    def why_not_written(self) -> str | None:
        return (
            "the policy is a host function of observations; a JAX function is f(params, obs, key)"
        )

    def write_into_program(self, o: RecurrentTensor, i: Index, time: Domain) -> Written:
        raise AssertionError(self.why_not_written)

    def on_host(self, seed: int, space: Any) -> OnHost:
        function = self.function

        def act(
            weights: Mapping[str, Any],
            obs: Array,
            number: int = 0,
            came: StepFeedback | None = None,
            mask: Array | None = None,
        ) -> Acted:
            made = function(obs) if mask is None else function(obs, action_mask=mask)
            # for a plain action, a step needs one call less
            return {"action": made} if made.__class__ is np.ndarray else parse_policy_result(made)

        return act

    @property
    def mask_argument(self) -> MaskArgument:
        return self.mask

    @property
    def text(self) -> str:
        return f"{type(self.function).__name__} {getattr(self.function, '__qualname__', '')}"

    @property
    def made_of(self) -> Any:
        return self.function


class TorchModule(HostFunction):
    """PyTorch module, called with tensors on its own device."""

    def on_host(self, seed: int, space: Any) -> OnHost:
        call = graph.with_tensors(self.function)

        def act(
            weights: Mapping[str, Any],
            obs: Array,
            number: int = 0,
            came: StepFeedback | None = None,
            mask: Array | None = None,
        ) -> Acted:
            named = {} if mask is None else {NAME: mask}
            return parse_policy_result(call(obs, **named))

        return act

    @property
    def made_of(self) -> Any:
        module: Any = self.function
        layers = [type(layer) for layer in getattr(module, "modules", list)()]
        weights = [(n, w, str(w.device)) for n, w in getattr(module, "named_parameters", list)()]
        return re.sub(r" at 0x\w+", "", repr(module)), type(module), layers, weights

    def with_weights(self, values: Any) -> Acting:
        self.check_weights(values)
        return self

    def in_background(self) -> Acting:
        try:
            acting, checked = deepcopy(self.function), deepcopy(self.function)
        except Exception as error:
            raise OptionError(
                f"the module cannot be copied for batches made in the background: {error}",
                hint="leave out ahead, or pass a module that copy.deepcopy supports.",
            ) from error
        return BackgroundModule(_state_of(checked), acting, checked, mask=self.mask)

    def check_weights(self, values: Any) -> dict[str, Any]:
        _load_weights(self.function, values)
        return {}


@dataclass(frozen=True)
class BackgroundModule(TorchModule):
    """Copies of a PyTorch module: one acts in another thread, the other checks new weights.

    Attributes:
        function: the acting copy.
        weights: the initial `state_dict()`.
        checked: the copy that loads new weights in the caller's thread.
    """

    checked: Any = None

    def on_host(self, seed: int, space: Any) -> OnHost:
        module: Any = self.function
        act, loaded = super().on_host(seed, space), self.weights

        def act_with(weights: Mapping[str, Any], *others: Any) -> Acted:
            nonlocal loaded
            if weights is not loaded:
                module.load_state_dict(weights)
                loaded = weights
            return act(weights, *others)

        return act_with

    def for_worker(self) -> Acting:
        module: Any = self.function
        return replace(self, weights={}, function=deepcopy(module).cpu(), checked=None)

    def with_weights(self, values: Any) -> Acting:
        return replace(self, weights=self.check_weights(values))

    def check_weights(self, values: Any) -> dict[str, Any]:
        _load_weights(self.checked, values)
        return _state_of(self.checked)


def _load_weights(module: Any, values: Any) -> None:
    try:
        module.load_state_dict(values)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ShapeError(
            f"the weights do not fit the module: {error}",
            hint="pass a result of its state_dict().",
        ) from None


def _state_of(module: Any) -> dict[str, Any]:
    """Return a copy of a module's weights."""
    return deepcopy(dict(module.state_dict()))


@dataclass(frozen=True)
class JaxFunction(Acting):
    """Pure JAX function of parameters, the observation of one environment, and a key.

    Attributes:
        function: the function.
        weights: arrays of its parameters, by path.
        tree: pytree of the initial parameters.
    """

    function: Callable[..., Any]
    tree: Any = None
    mask: MaskArgument = field(default=MaskArgument(), kw_only=True)

    @property
    def mask_argument(self) -> MaskArgument:
        return self.mask

    @property
    def why_not_written(self) -> str | None:
        return (
            f"the policy takes an {NAME}, which only environments on the host provide"
            if self.mask.is_needed
            else None
        )

    def write_into_program(self, o: RecurrentTensor, i: Index, time: Domain) -> Written:
        brought = {n: given(n, x.shape, x.dtype, domain=(i,)) for n, x in self.weights.items()}
        bits = random_bits((2,), domain=o.domain)
        made = jaxed(
            lambda w, seen, words: self._call_function(w, {"obs": seen}, graph.key_of(words)),
            brought,
            o,
            bits,
            name=name_of(self.function),
        )
        return Written(made, nothing_follows)

    def on_host(self, seed: int, space: Any) -> OnHost:
        rows = self._by_keys(seed, self.shard)

        def act(
            weights: Mapping[str, Any],
            obs: Array,
            number: int = 0,
            came: StepFeedback | None = None,
            mask: Array | None = None,
        ) -> Acted:
            seen = {"obs": obs} if mask is None else {"obs": obs, NAME: mask}
            return {name: np.asarray(x) for name, x in rows(weights, seen, number).items()}

        return act

    @cached_property
    def _by_keys(self) -> Callable[..., Callable[[Mapping[str, Any], Any, int], Acted]]:
        return graph.by_keys(self._call_function)

    def _call_function(
        self, weights: Mapping[str, Any], seen: Mapping[str, Any], key: Any
    ) -> Acted:
        """Return the result for one environment; `seen` has its observation, mask and state."""
        params = graph.with_leaves(self.tree, weights)
        named = {NAME: seen[NAME]} if NAME in seen else {}
        return parse_policy_result(self.function(params, seen["obs"], key, **named))

    def with_weights(self, values: Any) -> Acting:
        weights = {name: own(x) for name, x in graph.leaves(values).items()}
        return replace(self, weights=weights, tree=values)

    def check(self, observations: Any) -> None:
        seen = graph.array_type(observations.shape, NUMPY[observations.dtype])
        words = graph.array_type((2,), np.uint32)
        try:
            self._type_of(seen, words)
        except OptionError:  # an invalid name of an extra
            raise
        except Exception:
            return  # parameters may be set later; other errors are reported at the first action

    def _type_of(self, seen: Any, words: Any) -> Any:
        """Return the types of the function's results for types of observations and key words."""
        return graph.type_of(
            lambda w, o, k: self._call_function(w, {"obs": o}, graph.key_of(k)),
            self.weights,
            seen,
            words,
        )

    def check_weights(self, values: Any) -> dict[str, Any]:
        return super().check_weights(graph.leaves(values))

    @property
    def text(self) -> str:
        sizes = ", ".join(f"{n} {x.dtype}{list(x.shape)}" for n, x in self.weights.items())
        return f"{getattr(self.function, '__qualname__', '')} of {sizes}"

    @property
    def made_of(self) -> Any:
        return self.function, self.tree


@dataclass(frozen=True)
class RecurrentJaxFunction(JaxFunction):
    """Pure JAX function that also takes a state, and returns the next one.

    Attributes:
        state: arrays of the state at the first step of an episode, by path.
        state_tree: their pytree.
    """

    state: Mapping[str, Any] = field(default_factory=dict)
    state_tree: Any = None

    def write_into_program(self, o: RecurrentTensor, i: Index, time: Domain) -> Written:
        brought = {n: given(n, x.shape, x.dtype, domain=(i,)) for n, x in self.weights.items()}
        bits = random_bits((2,), domain=o.domain)
        firsts = {n: constant(x) for n, x in self.state.items()}
        states = {n: tensor(x.shape, x.dtype, domain=o.domain) for n, x in firsts.items()}
        made = jaxed(
            lambda w, s, seen, words: self._call_function(
                w, {"obs": seen, "state": s}, graph.key_of(words)
            ),
            brought,
            states,
            o,
            bits,
            name=name_of(self.function),
        )
        afters = {n: made.pop(_AFTER + n) for n in states}

        def follow(step: Any) -> None:
            for name, x in states.items():
                carry_state(x, firsts[name], afters[name], time, step)

        return Written(made, follow, states)

    def on_host(self, seed: int, space: Any) -> OnHost:
        rows, carried = self._by_keys(seed, self.shard), CarriedState()

        def act(
            weights: Mapping[str, Any],
            obs: Array,
            number: int = 0,
            came: StepFeedback | None = None,
            mask: Array | None = None,
        ) -> Acted:
            now = StepFeedback.before_first_step(len(obs)) if came is None else came
            state = carried.before(number, now, lambda: self.state)
            seen = {"obs": obs, "state": state} | ({} if mask is None else {NAME: mask})
            made = {n: np.asarray(x) for n, x in rows(weights, seen, number).items()}
            carried.store(number, now, state, {n: made.pop(_AFTER + n) for n in state})
            return made | {STATE + n: x for n, x in state.items()}

        return act

    @property
    def looks_back(self) -> bool:
        return True

    @property
    def state_names(self) -> Sequence[str]:
        return tuple(self.state)

    def tree_of(self, states: dict[str, Any]) -> Any:
        return graph.with_leaves(self.state_tree, states)

    def _call_function(
        self, weights: Mapping[str, Any], seen: Mapping[str, Any], key: Any
    ) -> Acted:
        params, state = graph.with_leaves(self.tree, weights), self.tree_of(seen["state"])
        named = {NAME: seen[NAME]} if NAME in seen else {}
        found: Any = self.function(params, seen["obs"], state, key, **named)
        if not isinstance(found, tuple) or len(found) < 2:
            raise ShapeError(
                "the recurrent policy returns no next state.",
                hint="return (action, next_state), or (action, extras, next_state) with a dict of extras.",
            )
        *made, after = found
        acted = parse_policy_result(made[0] if len(made) == 1 else tuple(made))
        return acted | {_AFTER + n: x for n, x in self._checked_state(after).items()}

    def _checked_state(self, after: Any) -> Mapping[str, Any]:
        """Return the arrays of a next state in the types of the first one."""
        found = graph.leaves(after)
        types = {n: f"{x.dtype}{list(x.shape)}" for n, x in found.items()}
        wanted = {n: f"{x.dtype}{list(x.shape)}" for n, x in self.state.items()}
        if types != wanted:
            raise ShapeError(
                f"the recurrent policy returns the state {types}, but initial_state is {wanted}.",
                hint="return a state of equal structure, shapes and element types.",
            )
        return found

    def _type_of(self, seen: Any, words: Any) -> Any:
        return graph.type_of(
            lambda w, o, s, k: self._call_function(w, {"obs": o, "state": s}, graph.key_of(k)),
            self.weights,
            seen,
            self.state,
            words,
        )

    @property
    def made_of(self) -> Any:
        return *super().made_of, self.state_tree


_AFTER: Final = "state after "  # prefix of the next state in the results of a function


def parse_policy_result(made: Any) -> Acted:
    """Convert the result of a policy function to a dictionary.

    The result is an action; an action and a dictionary of extras; or an action, its log-probability
    and a value.

    Raises:
        ShapeError: it has more parts.
        OptionError: an extra has a reserved name.
    """
    if not isinstance(made, tuple):
        return {"action": made}
    if len(made) == 2 and isinstance(made[1], Mapping):
        check_names(made[1])
        return {"action": made[0], **made[1]}
    if len(made) <= 3:
        return dict(zip(("action", "log_prob", "value"), made, strict=False))
    raise ShapeError(
        f"the policy returns {len(made)} arrays.",
        hint="return the action; or action, log_prob and value; or the action and a dict of others.",
    )


def function_of(policy: Callable[..., Any], state: Any = None) -> Acting:
    """Return the policy of a function; its number of arguments determines the kind.

    Args:
        policy: the function.
        state: first state of a recurrent JAX function, a pytree.

    Raises:
        OptionError: the arguments are neither `obs`, nor `params, obs, key`, nor
            `params, obs, state, key`; a function of the last kind lacks its state, or another one has a state.
    """
    found = _function_of(policy, state)
    if state is not None and not isinstance(found, RecurrentJaxFunction):
        raise OptionError(
            "initial_state is the state of a recurrent JAX function, but the policy is no such function.",
            hint="pass f(params, obs, state, key), or leave out initial_state.",
        )
    return found


def _function_of(policy: Callable[..., Any], state: Any) -> Acting:
    """Return the policy of a PyTorch module, or of a function by its number of arguments.

    Raises:
        OptionError: the number of arguments is unsuitable, or a recurrent function has no initial state.
    """
    if hasattr(policy, "load_state_dict"):
        return TorchModule({}, policy, mask=_mask_argument(getattr(policy, "forward", policy)))
    try:
        takes = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError):  # a function written in C has no signature
        return HostFunction({}, policy)
    needed = [
        p
        for p in takes
        if p.default is p.empty
        and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        and p.name != NAME
    ]
    mask = _mask_argument(policy)
    if len(needed) == 3:
        return JaxFunction({}, policy, mask=mask)
    if len(needed) == 4:
        if state is None:
            raise OptionError(
                "the recurrent policy function has no first state.",
                hint="pass initial_state=…, the state of one environment at the start of an episode.",
            )
        first = {name: np.asarray(own(x)) for name, x in graph.leaves(state).items()}
        return RecurrentJaxFunction({}, policy, state=first, state_tree=state, mask=mask)
    if len(needed) == 1 or (not needed and any(p.kind is p.VAR_POSITIONAL for p in takes)):
        return HostFunction({}, policy, mask=mask)
    raise OptionError(
        f"the policy function has the arguments ({', '.join(p.name for p in needed)}).",
        hint="use f(obs) for a NumPy function of the observations of all environments, f(params, "
        "obs, key) for a pure JAX function of one observation, or f(params, obs, state, key) for a "
        "recurrent one. Each may also take action_mask.",
    )


def _mask_argument(function: Callable[..., Any]) -> MaskArgument:
    """Return the use of masks by a function: whether it has an argument `action_mask`."""
    try:
        found = inspect.signature(function).parameters.get(NAME)
    except (TypeError, ValueError):
        return MaskArgument()
    if found is None or found.kind not in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY):
        return MaskArgument()
    return MaskArgument(True, found.default is found.empty, allows_gaps=False)
