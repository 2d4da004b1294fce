"""The engine of interpreted programs in a session of tests (`pytest --engine torch`)."""

from __future__ import annotations

import os

from timerl_nb.base.options import Options

_CHECK = Options.__post_init__


def use_engine(name: str) -> None:
    """Let programs that the interpreter would run with JAX use another engine.

    Programs with options that only JAX has are unchanged. A test that names its backend keeps it.
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
        if executor == "interpret" and options.backend == "jax" and not any(needs_jax):
            object.__setattr__(options, "backend", name)
            object.__setattr__(options, "executor", None)
        _CHECK(options)

    Options.__post_init__ = check
