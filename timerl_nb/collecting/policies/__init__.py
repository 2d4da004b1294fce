"""Policies for collectors: networks, functions and policies of training programs."""
