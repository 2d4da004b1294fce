"""Environments (`trl.env`): `make`, `register`, spaces, and the JAX-native ones."""

from timerl_nb.env.cartpole import CartPole
from timerl_nb.env.core import Environment, Step, make, register
from timerl_nb.env.spaces import Box, Discrete

register("CartPole-v1", CartPole)

__all__ = ["Box", "CartPole", "Discrete", "Environment", "Step", "make", "register"]
