"""Reinforcement-learning parts: policies from an environment's spaces, and what was learnt."""

from timerl_nb.rl.evaluation import evaluated
from timerl_nb.rl.learnt import Episodes, LearntPolicy
from timerl_nb.rl.policy import DNNBuilder, Policy

__all__ = ["DNNBuilder", "Episodes", "LearntPolicy", "Policy", "evaluated"]
