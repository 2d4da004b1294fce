"""Environments (`trl.env`): `make`, `register`, spaces, ours, and those of Gymnasium, gymnax and Brax."""

from timerl_nb.env.brax import BraxEnvironment
from timerl_nb.env.cartpole import CartPole
from timerl_nb.env.core import Environment, Simulation, Step, make, register
from timerl_nb.env.gym import GymEnvironment
from timerl_nb.env.gymnax import GymnaxEnvironment
from timerl_nb.env.jax_native import JaxEnvironment
from timerl_nb.env.mountain_car import MountainCar, MountainCarContinuous
from timerl_nb.env.pendulum import Pendulum
from timerl_nb.env.pool import PoolEnvironment
from timerl_nb.env.spaces import Box, Discrete, MultiDiscrete
from timerl_nb.env.synthetic import Synthetic
from timerl_nb.frontend.foreign import module_names as _module_names

register("CartPole-v1", CartPole)
register("MountainCar-v0", MountainCar)
register("MountainCarContinuous-v0", MountainCarContinuous)
register("Pendulum-v1", Pendulum)
register("envpool.*", PoolEnvironment)
register("brax.*", BraxEnvironment)
register("gym.*", GymEnvironment)
register("gymnax.*", GymnaxEnvironment)
register("synthetic", Synthetic)

__all__ = [
    "Box",
    "BraxEnvironment",
    "CartPole",
    "Discrete",
    "Environment",
    "GymEnvironment",
    "GymnaxEnvironment",
    "JaxEnvironment",
    "MountainCar",
    "MountainCarContinuous",
    "MultiDiscrete",
    "Pendulum",
    "PoolEnvironment",
    "Simulation",
    "Step",
    "Synthetic",
    "make",
    "register",
]

__getattr__, __dir__ = _module_names("trl.env", lambda: __all__)
