"""Environments given as JAX functions, compiled as part of the program by `trl.jaxed`."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from timerl_nb.base.errors import EnvError, Origin
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.inputs.jax_functions import jaxed
from timerl_nb.compiler.language.inputs.tensor_sources import random_bits
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor

Type = jax.ShapeDtypeStruct
BITS = Type((2,), jnp.uint32)  # random bits of a key


class JaxEnvironment(Environment):
    """Environment defined by two pure JAX functions, for one environment at one time step.

    Its state is a tree of arrays. Each leaf is a tensor; leaves that no later observation, reward or end depends on are not
    stored. An observation is an array; a tree of arrays, such as a dictionary, becomes one float32 vector in the order of
    `jax.tree.leaves`. Subclasses set `obs_space` and `act_space`, and define `first` and `after`.

    Args:
        autoreset, max_steps, differentiable: as for `Environment`.

    Example:
        >>> import jax
        >>> class Walk(trl.env.JaxEnvironment):
        ...     obs_space, act_space = trl.env.Box(-2.0, 2.0), trl.env.Discrete(2)
        ...     def first(self, key):
        ...         state = jax.random.uniform(key, (), minval=-1.0, maxval=1.0)
        ...         return state, state
        ...     def after(self, key, state, action):
        ...         state = state + 0.2 * action - 0.1
        ...         return state, state, -abs(state), abs(state) > 1.0
        >>> Walk().reset(domain=(b, i))
        f32[] @ (b, i)
    """

    @abstractmethod
    def first(self, key: Any) -> tuple[Any, Any]:
        """Return the state and observation at the start of an episode, from a random key."""

    @abstractmethod
    def after(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        """Return the state after an action, the observation, the reward, and whether the episode has terminated."""

    def first_state(self, domain: Domain) -> tuple[Tensor, ...]:
        begin = partial(self._reset_leaves, self._layout)
        return self._name_state(jaxed(begin, random_bits(BITS.shape, domain=domain), name="reset"))

    def transition(
        self, state: tuple[Tensor, ...], action: Tensor
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        bits = random_bits(BITS.shape, domain=action.domain)
        after = partial(self._step_leaves, self._layout)
        reward, ended, *made = jaxed(after, bits, [*state[1:]], action, name="step")
        return self._name_state(made), reward, ended

    def observe(self, state: tuple[Tensor, ...]) -> Tensor:
        return state[0]

    def _name_state(self, state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        names = ("observation", *self._layout.select_leaves(self._layout.names))
        return tuple(x.named(name) for x, name in zip(state, names, strict=True))

    def _reset_leaves(self, layout: _Layout, bits: Any) -> list[Any]:
        state, seen = self._check_result_count("first", self.first(_key(bits)))
        return [_vector(seen), *layout.select_leaves(jax.tree.leaves(state))]

    def _step_leaves(self, layout: _Layout, bits: Any, leaves: Any, action: Any) -> list[Any]:
        made = self.after(_key(bits), layout.restore_state(leaves), action)
        state, seen, reward, ended = self._check_result_count("after", made)
        scalars = (jnp.asarray(reward, jnp.float32), jnp.asarray(ended, bool))
        return [
            *(x.reshape(()) for x in scalars),
            _vector(seen),
            *layout.select_leaves(jax.tree.leaves(state)),
        ]

    def _check_result_count(self, name: str, made: Any) -> Any:
        """Check the number of a function's results.

        Raises:
            EnvError: the function returns another number of values.
        """
        wanted = _RETURNED[name]
        if isinstance(made, tuple | list) and len(made) == len(wanted):
            return made
        what = f"{len(made)} values" if isinstance(made, tuple | list) else type(made).__name__
        raise EnvError(
            f"{self.made_as}: {name} returns {what}, not ({', '.join(wanted)}).",
            origin=_written_at(getattr(self, name)),
            hint=f"return {', '.join(wanted)}.",
        )

    def _check_call(self, name: str, wanted: tuple[str, ...]) -> None:
        """Check the arguments of a function, by their number and names.

        Raises:
            EnvError: there are other arguments, or in another order.
        """
        function = getattr(self, name)
        try:
            takes = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # written in C
            return
        by_place = [p for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        names = [p.name for p in by_place]
        needed = [p.name for p in by_place if p.default is p.empty]
        is_open = any(p.kind is p.VAR_POSITIONAL for p in takes)
        fits = len(needed) <= len(wanted) and (is_open or len(names) >= len(wanted))
        roles = [_ROLES.get(n.strip("_"), "") for n in names[: len(wanted)]]
        # Names with a known role must be in the order of the call.
        known = [(role, here) for role, here in zip(roles, wanted, strict=False) if role]
        if fits and (
            all(role == here for role, here in known) or len({*roles} - {""}) < len(known)
        ):
            return
        others = [p.name for p in takes if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        raise EnvError(
            f"{self.made_as}: {name} takes ({', '.join([*names, *others])}), but is called as "
            f"{name}({', '.join(wanted)}).",
            origin=_written_at(function),
            hint=f"write def {name}(self, {', '.join(wanted)}): arguments are positional.",
        )

    @cached_property
    def _layout(self) -> _Layout:
        """Type of the observation and layout of the state.

        Raises:
            EnvError: a function raises, or the types of states or observations are unsuitable.
        """
        for name, wanted in _CALLED.items():
            self._check_call(name, wanted)
        space = self.act_space
        action = Type(space.shape, NUMPY[space.dtype])
        try:
            state, tree = jax.eval_shape(
                lambda bits: self._check_result_count("first", self.first(_key(bits))), BITS
            )
            seen = jax.eval_shape(_vector, tree)
            paths, structure = jax.tree_util.tree_flatten_with_path(state)
            names = (jax.tree_util.keystr(p, simple=True, separator=".") for p, _ in paths)
            leaves = tuple(x for _, x in paths)
            every = _Layout(seen, structure, leaves, tuple(names), (True,) * len(leaves))
            step, found = jax.make_jaxpr(partial(self._step_leaves, every), return_shape=True)(
                BITS, leaves, action
            )
        except EnvError:
            raise
        except Exception as error:  # the user's functions may raise anything
            raise EnvError(
                f"{self.made_as}: {type(error).__name__}: {error}",
                origin=_raised_at(error),
                hint="write first(key) and after(key, state, action) for one environment.",
            ) from error
        before, after = [seen, *leaves], found[2:]
        for name, was, now in zip(("observation", *every.names), before, after, strict=True):
            if (was.shape, was.dtype) != (now.shape, now.dtype):
                raise EnvError(
                    f"{self.made_as}: {name} is {was.dtype}{[*was.shape]} at first, but "
                    f"{now.dtype}{[*now.shape]} after a step.",
                    hint="return the same shapes and types from first and after.",
                )
        return replace(every, is_read=_find_read_leaves(step.jaxpr, len(leaves)))


@dataclass(frozen=True)
class _Layout:
    """Type of an observation, and leaves of a state with a mark for those that later steps read."""

    seen: Type
    structure: Any
    leaves: tuple[Type, ...]
    names: tuple[str, ...]
    is_read: tuple[bool, ...]

    def select_leaves(self, leaves: Sequence[Any]) -> list[Any]:
        return [x for x, is_read in zip(leaves, self.is_read, strict=True) if is_read]

    def restore_state(self, kept: Sequence[Any]) -> Any:
        """Return a state, with zeros for leaves that are not stored."""
        known = iter(kept)
        pairs = zip(self.leaves, self.is_read, strict=True)
        filled = [next(known) if kept else jnp.zeros(x.shape, x.dtype) for x, kept in pairs]
        return jax.tree.unflatten(self.structure, filled)


# Arguments and results of an environment's functions, and common synonyms of the arguments.
_CALLED: Final = {"first": ("key",), "after": ("key", "state", "action")}
_RETURNED: Final = {
    "first": ("state", "observation"),
    "after": ("state", "observation", "reward", "terminated"),
}
_ROLES: Final = {
    **dict.fromkeys(("key", "rng", "rng_key", "prng_key", "random_key"), "key"),
    **dict.fromkeys(("state", "env_state", "old_state", "previous"), "state"),
    **dict.fromkeys(("action", "actions", "act"), "action"),
}


def import_library(module: str, name: str, extra: str) -> Any:
    """Import a library of environments.

    Raises:
        EnvError: it cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise EnvError(
            f"environments named {extra}.… need {name}, which is not installed ({error}).",
            hint=f"install the extra: pip install 'timerl-nb[{extra}]'.",
        ) from None


def _written_at(function: Any) -> Origin | None:
    """Return the line of a function's definition."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    return None if code is None else Origin(code.co_filename, code.co_firstlineno)


def _raised_at(error: Exception) -> Origin | None:
    """Return the innermost line of the user's code in an error's traceback."""
    libraries = tuple(str(Path(file).parent) for file in (jax.__file__, __file__))
    inside = extract_tb(error.__traceback__)
    own = [f for f in inside if not f.filename.startswith(libraries) and f.lineno is not None]
    return Origin(own[-1].filename, own[-1].lineno or 0) if own else None


def _vector(seen: Any) -> Any:
    """Return an observation as one array: the arrays of a tree become one float32 vector, in the order of `jax.tree.leaves`."""
    if jax.tree.structure(seen) == jax.tree.structure(0):
        return seen
    return jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in jax.tree.leaves(seen)])


def _key(bits: Any) -> Any:
    return jax.random.wrap_key_data(bits, impl="threefry2x32")


def _find_read_leaves(step: Any, count: int) -> tuple[bool, ...]:
    """Return for each leaf whether rewards, ends or observations depend on it, directly or through later leaves."""
    found = [False] * count
    while True:
        _, used = dce_jaxpr(step, [True] * 3 + found)
        more = [a or b for a, b in zip(found, used[1 : 1 + count], strict=True)]
        if more == found:
            return tuple(found)
        found = more
