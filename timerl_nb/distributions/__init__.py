"""Probability distributions with tensors as parameters (`trl.distributions`)."""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.distributions.beta import Beta
from timerl_nb.distributions.categorical import Bernoulli, Categorical, MultiCategorical
from timerl_nb.distributions.distribution import Distribution
from timerl_nb.distributions.normal import Normal, TanhNormal

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Distribution",
    "MultiCategorical",
    "Normal",
    "TanhNormal",
]

__getattr__, __dir__ = _module_names("trl.distributions", lambda: __all__)
