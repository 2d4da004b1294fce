"""The benchmarks run, and count what they say they count."""

import re

from benchmarks import compiling, depth, interpreter, peaks


def test_the_interpreter_is_measured_three_ways() -> None:
    program = compiling.compiled("5-step").with_bounds({"B": 2, "I": 1, "T": 10})
    before = program.execute(progress=False)["return"]
    found = interpreter.measure(program, repeats=1)
    # init, reset, 10 × acting, 10 × learning, update and the mean return
    assert found["instructions, of which Execute"].endswith(", 24")
    assert float(found["run / bare"]) > 0
    assert (program.execute(progress=False)["return"] == before).all(), "kernels are put back"


def test_compile_times_name_every_stage(capsys) -> None:
    compiling.main(repeats=1)
    text = capsys.readouterr().out
    for stage in ("simplify", "vectorize", "fuse", "schedule", "memory", "ast", "total"):
        assert f"| {stage} |" in text


def test_depth_names_operations_and_the_share_of_isl(capsys) -> None:
    depth.main(depths=(1,), repeats=1)
    text = capsys.readouterr().out
    assert text.count("| of which isl schedules |") == len(depth.PROGRAMS)
    assert re.search(r"\| simplify \| [\d.]+ \(\d+ -> \d+ operations", text)
    assert re.search(r"\| schedule \| [\d.]+ \(\d+ statements", text)


def test_predicted_peaks_are_the_ledger_s(capsys) -> None:
    peaks.main(most=2)
    rows = [line for line in capsys.readouterr().out.splitlines() if "bytes" not in line][1:]
    assert len(rows) == 2 and all(row.endswith("| yes |") for row in rows)
