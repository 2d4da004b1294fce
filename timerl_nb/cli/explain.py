"""`timerl explain FILE`: prints the compilation of a script's programs without running them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.text_formatting import format_bytes
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.script_runner import Compiled, read_with_script
from timerl_nb.compiler.symbolic.dimensions import bounds_text

_EXAMPLES: Final = """  timerl explain train.py                    stages, peak memory and schedule
  timerl explain train.py --stage ast        the generated loop nest
  timerl explain train.py --bounds T=1000    the same programs with another bound
  timerl explain train.py --html program.html
  timerl explain train.py -- --lr 0.1        arguments after -- go to the script

next:
  timerl profile train.py --turns 5          run the programs and measure their kernels
"""


def main(words: Sequence[str]) -> int:
    """Run `timerl explain`."""
    about = "Print stages, peak memory and schedule of the programs that a script compiles."
    parser = Parser("explain", about, _EXAMPLES)
    parser.add_argument("--stage", help="print only this stage: pdg, fuse, memory, ast, ...")
    parser.add_argument(
        "--html",
        type=user_path,
        metavar="FILE",
        help="write the compilation as an HTML file (of a second program: FILE-2, and so on)",
    )
    given, script = read_with_script(parser, words)
    programs = script.compile_under(given)
    for k, one in enumerate(programs, 1):
        if len(programs) > 1 or given.stage is None:
            print(("\n" if k > 1 else "") + _head(one, k, len(programs)))
        if given.stage is not None:
            print(one.program.stages[given.stage].artifact)
        else:
            print(_whole(one))
        if given.html is not None:
            path: Path = given.html
            named = path if k == 1 else path.with_stem(f"{path.stem}-{k}")
            print(f"written to {one.program.export_html(named)}")
    return script.report_end()


def _head(one: Compiled, number: int, of: int) -> str:
    return f"program {number} of {of}, compiled at {one.origin}\n{bounds_text(one.program.bounds)}"


def _whole(one: Compiled) -> str:
    program = one.program
    timeline = program.memory.timeline()
    parts = {
        "stages": repr(program.stages),
        "peak": f"{format_bytes(program.memory.peak)} of live values (predicted); the largest are "
        + "; ".join(map(str, timeline.holders[:3])),
        "schedule": str(program.schedule),
        "loop nest": str(program.ast),
    }
    if program.warnings:
        parts["warnings"] = "\n".join(program.warnings)
    return "\n".join(f"\n{name}:\n{text}" for name, text in parts.items())
