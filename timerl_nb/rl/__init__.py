"""Reinforcement-learning components: policy networks, exported policies, replay windows, target networks."""

from timerl_nb.rl.evaluation import evaluated
from timerl_nb.rl.exported_policy import Episodes, LearntPolicy
from timerl_nb.rl.policy_networks import DNNBuilder, Policy

__all__ = ["DNNBuilder", "Episodes", "LearntPolicy", "Policy", "evaluated"]
