"""Policies that collectors accept: networks, functions, policies of training programs."""
