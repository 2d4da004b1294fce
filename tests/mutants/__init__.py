"""Mutation testing (`make mutants`): is what is wrong with the compiler noticed by a test?"""
