"""Random tensors (`trl.random`): functions of the run's seed, a stream and the point.

A draw does not depend on the order of execution, so equal seeds give equal results on any schedule.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.compiler.language.inputs.tensor_sources import random_bits as bits
from timerl_nb.compiler.language.inputs.tensor_sources import random_gumbel as gumbel
from timerl_nb.compiler.language.inputs.tensor_sources import random_normal as normal
from timerl_nb.compiler.language.inputs.tensor_sources import random_uniform as uniform
from timerl_nb.compiler.language.operations.random_draws import random_bernoulli as bernoulli
from timerl_nb.compiler.language.operations.random_draws import random_categorical as categorical
from timerl_nb.compiler.language.operations.random_draws import random_permutation as permutation
from timerl_nb.compiler.language.operations.random_draws import random_randint as randint

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "gumbel",
    "normal",
    "permutation",
    "randint",
    "uniform",
]

__getattr__, __dir__ = _module_names("trl.random", lambda: __all__)
