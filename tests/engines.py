"""The engine of interpreted programs in a session of tests (`pytest --engine torch`)."""

from __future__ import annotations

import os

from timerl_nb.base.options import Options

_CHECK = Options.__post_init__


def use_engine(name: str) -> None:
    """Let programs that the interpreter would run with JAX use another engine.

    Programs with options that only JAX has use JAX.
    """
    if name == "jax":
        return

    def check(options: Options) -> None:
        needs_jax = (
            options.devices != 1,
            options.fuse_iterations != 1,
            options.tile is not False,
            options.tile_kernel is not False,
            options.tune,
        )
        executor = options.executor or os.environ.get("TIMERL_EXECUTOR", "xla")
        backend = name if executor == "interpret" and not any(needs_jax) else "jax"
        object.__setattr__(options, "backend", backend)
        if backend == name:
            object.__setattr__(options, "executor", None)
        _CHECK(options)

    Options.__post_init__ = check
