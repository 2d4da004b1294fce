"""Environments (`trl.env`): `make`, `register`, spaces, built-in environments, Gymnasium, gymnax, Brax and EnvPool."""

from typing import Any

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.env.acrobot import Acrobot
from timerl_nb.env.cartpole import CartPole
from timerl_nb.env.catch import Catch
from timerl_nb.env.environment import (
    AutoresetMode,
    Environment,
    Simulation,
    Step,
    make,
    register,
)
from timerl_nb.env.envpool import PoolEnvironment
from timerl_nb.env.grid_world import GridWorld
from timerl_nb.env.gymnasium import GymEnvironment
from timerl_nb.env.mountain_car import MountainCar, MountainCarContinuous
from timerl_nb.env.normalization import NormalizeObservation, NormalizeReward
from timerl_nb.env.pendulum import Pendulum
from timerl_nb.env.spaces import Box, Discrete, MultiDiscrete
from timerl_nb.env.synthetic import Synthetic
from timerl_nb.env.t_maze import TMaze
from timerl_nb.env.tic_tac_toe import TicTacToe
from timerl_nb.env.wrappers import ClipReward, FrameStackObservation, RepeatAction, TimeLimit

register("Acrobot-v1", Acrobot)
register("CartPole-v1", CartPole)
register("Catch", Catch)
register("GridWorld", GridWorld)
register("MountainCar-v0", MountainCar)
register("MountainCarContinuous-v0", MountainCarContinuous)
register("Pendulum-v1", Pendulum)
register("envpool.*", PoolEnvironment)
register("gym.*", GymEnvironment)
register("synthetic", Synthetic)
register("TMaze", TMaze)
register("TicTacToe", TicTacToe)

__all__ = [
    "Acrobot",
    "AutoresetMode",
    "Box",
    "CartPole",
    "Catch",
    "ClipReward",
    "Discrete",
    "Environment",
    "FrameStackObservation",
    "GridWorld",
    "GymEnvironment",
    "MountainCar",
    "MountainCarContinuous",
    "MultiDiscrete",
    "NormalizeObservation",
    "NormalizeReward",
    "Pendulum",
    "PoolEnvironment",
    "RepeatAction",
    "Simulation",
    "Step",
    "Synthetic",
    "TMaze",
    "TicTacToe",
    "TimeLimit",
    "make",
    "register",
]

# Wrappers of other JAX libraries, imported at first use.
_LATER = {
    "BraxEnvironment": "timerl_nb.env.brax:BraxEnvironment",
    "GymnaxEnvironment": "timerl_nb.env.gymnax:GymnaxEnvironment",
    "JaxEnvironment": "timerl_nb.env.jax_environment:JaxEnvironment",
}
__all__ += list(_LATER)

__getattr__, __dir__ = _module_names("trl.env", lambda: __all__, later=_LATER)


def _brax(name: str, **options: Any) -> Simulation:
    return __getattr__("BraxEnvironment")(name, **options)


def _gymnax(name: str, **options: Any) -> Simulation:
    return __getattr__("GymnaxEnvironment")(name, **options)


register("brax.*", _brax)
register("gymnax.*", _gymnax)
