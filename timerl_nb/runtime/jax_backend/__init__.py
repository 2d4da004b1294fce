"""Engines that compile and run kernels, behind one thin interface."""
