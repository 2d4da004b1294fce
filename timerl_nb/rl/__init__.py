"""Reinforcement-learning parts: policies built from an environment's spaces."""

from timerl_nb.rl.policy import DNNBuilder, Policy

__all__ = ["DNNBuilder", "Policy"]
