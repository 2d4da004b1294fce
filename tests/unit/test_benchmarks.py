"""The benchmarks run, and count what they say they count."""

from benchmarks import compiling, interpreter


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
