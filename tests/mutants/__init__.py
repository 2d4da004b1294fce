"""Mutation testing of the compiler (`make mutants`): do the tests detect injected mistakes?"""
