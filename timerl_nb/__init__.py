"""TimeRL-nb: a compiler for deep reinforcement learning written as recurrence equations.

Use it as `import timerl_nb as trl`. This module only re-exports; `docs/` contains guides and the reference.
"""

from timerl_nb import algorithms, distributions, env, logs, nn, optim, random, show
from timerl_nb.base import errors
from timerl_nb.base.options import Options
from timerl_nb.compiler.language.autodiff.custom_vjp import custom_vjp
from timerl_nb.compiler.language.autodiff.grad_transform import grad, value_and_grad
from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.compiler.language.inputs.dynamic_bound_inputs import until
from timerl_nb.compiler.language.inputs.iteration_inputs import given
from timerl_nb.compiler.language.inputs.jax_functions import jaxed
from timerl_nb.compiler.language.inputs.tensor_sources import (
    Parameter,
    arange,
    concat,
    constant,
    data,
    first_match,
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
from timerl_nb.compiler.language.inputs.tensor_sources import maximum as max
from timerl_nb.compiler.language.inputs.tensor_sources import minimum as min
from timerl_nb.compiler.language.inputs.user_defined_functions import Resource, udf
from timerl_nb.compiler.language.operations import numpy_dispatch as _numpy_calls  # noqa: F401 (enters itself)
from timerl_nb.compiler.language.operations import numpy_style_functions as _functions
from timerl_nb.compiler.language.operations.convolution_and_pooling import (
    avg_pool,
    conv,
    conv_transpose,
    max_pool,
)
from timerl_nb.compiler.language.operations.numpy_style_functions import *  # noqa: F403 (it lists them)
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import ENDLESS as endless
from timerl_nb.driver.compiling_context import Context
from timerl_nb.driver.program import Program
from timerl_nb.driver.program_family import explore
from timerl_nb.driver.search.machine_benchmark import tune_machine
from timerl_nb.execution.results.run_result import Result
from timerl_nb.profiler import Profile, profile
from timerl_nb.rl.policy_networks import DNNBuilder
from timerl_nb.runtime.state.checkpoint_reader import load
from timerl_nb.show.comparison.argument_sweep import sweep

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
    "first_match",
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

# Companion systems, imported at first use.
_LATER = {
    "collect": "timerl_nb.collecting:collect",
    "compose": "timerl_nb.compose",
    "datasets": "timerl_nb.datasets",
    "distributed": "timerl_nb.distributed",
    "exchange": "timerl_nb.exchange",
    "from_torch": "timerl_nb.exchange:from_torch",
    "kernel": "timerl_nb.streams:kernel",
    "policies": "timerl_nb.collecting.policies.ready_policies",
    "replay": "timerl_nb.replay",
    "Replay": "timerl_nb.replay:Replay",
    "scope": "timerl_nb.scope",
    "streams": "timerl_nb.streams",
    "to_torch": "timerl_nb.exchange:to_torch",
    "tune": "timerl_nb.tune",
}
__all__ += list(_LATER)

__getattr__, __dir__ = _module_names("trl", lambda: __all__, later=_LATER)
