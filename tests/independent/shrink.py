"""Minimisation of a program that disagrees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.independent.programs import Program
from tests.independent.verdict import Verdict, tried


def shrunk(
    program: Program, kind: str, seconds: float = 90, judge: Callable[[Program], Verdict] = tried
) -> Program:
    """Return the smallest program found with a verdict of this kind."""
    end = time.monotonic() + seconds
    again = True
    while again:
        again = False
        for smaller in candidates(program):
            if time.monotonic() > end:
                return program
            if judge(smaller).kind == kind:
                program, again = smaller, True
                break
    return program


def candidates(program: Program) -> Iterator[Program]:
    """Yield smaller programs, those with the largest omissions first."""
    if program.options:
        yield replace(program, options={})
        for name in program.options:
            options = {k: v for k, v in program.options.items() if k != name}
            yield replace(program, options=options)
    names = program.names
    for name in program.outputs:
        fewer = program.returning([name])
        if len(fewer.outputs) < len(program.outputs):
            yield fewer
    for name in program.outputs:
        fewer = program.returning(x for x in program.outputs if x != name)
        if 0 < len(fewer.outputs) < len(program.outputs):
            yield fewer
    for name in program.outputs:  # replace a reader by its operand
        for read in sorted(names[name].reads) if name in names else ():
            if read in names and read not in program.outputs and names[read].reads:
                yield program.returning(read if x == name else x for x in program.outputs)
    for d, n in program.bounds.items():
        for fewer in dict.fromkeys((n // 2, n - 1)):
            if fewer >= 1:
                yield replace(program, bounds={**program.bounds, d: fewer})
    for k, statement in enumerate(program.statements):
        for smaller in statement.smaller():
            statements = (*program.statements[:k], smaller, *program.statements[k + 1 :])
            yield replace(program, statements=statements).returning(program.outputs)
