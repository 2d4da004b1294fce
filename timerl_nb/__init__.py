"""TimeRL-nb: deep reinforcement learning as recurrence equations, compiled and looked into.

`import timerl_nb as trl`. This module only re-exports; `docs/` describes each part.
"""

from timerl_nb import algorithms, distributions, env, errors, logs, nn, optim, random, show
from timerl_nb.config import Options
from timerl_nb.driver.context import Context
from timerl_nb.driver.family import explore
from timerl_nb.driver.measuring import tune_machine
from timerl_nb.driver.program import Program
from timerl_nb.frontend import functions as _functions
from timerl_nb.frontend import numpy_calls as _numpy_calls  # noqa: F401 (enters itself)
from timerl_nb.frontend.custom import custom_vjp
from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.frontend.functional import grad, value_and_grad
from timerl_nb.frontend.functions import *  # noqa: F403 (it lists them)
from timerl_nb.frontend.given import given
from timerl_nb.frontend.jaxed import jaxed
from timerl_nb.frontend.sources import (
    Parameter,
    arange,
    concat,
    constant,
    data,
    full,
    like,
    ones,
    parameter,
    stack,
    tensor,
    value,
    where,
    zeros,
)
from timerl_nb.frontend.sources import maximum as max
from timerl_nb.frontend.sources import minimum as min
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.frontend.udf import Resource, udf
from timerl_nb.frontend.until import until
from timerl_nb.frontend.windows import avg_pool, conv, conv_transpose, max_pool
from timerl_nb.live.results import Result
from timerl_nb.profiler import Profile, profile
from timerl_nb.rl.policy import DNNBuilder
from timerl_nb.runtime.loading import load
from timerl_nb.show.sweeping import sweep
from timerl_nb.symbolic.domain import ENDLESS as endless

__all__ = [
    "Context",
    "DNNBuilder",
    "Options",
    "Parameter",
    "Profile",
    "Program",
    "RecurrentTensor",
    "Resource",
    "Result",
    "algorithms",
    "arange",
    "avg_pool",
    "concat",
    "constant",
    "conv",
    "conv_transpose",
    "custom_vjp",
    "data",
    "distributions",
    "endless",
    "env",
    "errors",
    "explore",
    "full",
    "given",
    "grad",
    "jaxed",
    "like",
    "load",
    "logs",
    "max",
    "max_pool",
    "min",
    "nn",
    "ones",
    "optim",
    "parameter",
    "profile",
    "random",
    "show",
    "stack",
    "sweep",
    "tensor",
    "tune_machine",
    "udf",
    "until",
    "value",
    "value_and_grad",
    "where",
    "zeros",
]
__all__ += _functions.__all__

# Systems of their own, which most programs do without.
_LATER = {
    "collect": "timerl_nb.collecting:collect",
    "compose": "timerl_nb.compose",
    "kernel": "timerl_nb.streams:kernel",
    "policies": "timerl_nb.collecting.policies",
    "replay": "timerl_nb.replay",
    "Replay": "timerl_nb.replay:Replay",
    "scope": "timerl_nb.scope",
    "streams": "timerl_nb.streams",
}
__all__ += list(_LATER)

__getattr__, __dir__ = _module_names("trl", lambda: __all__, later=_LATER)
