"""`trl.load`, and networks initialised from its result or with other parameters."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save as safetensors

import timerl_nb as trl
from timerl_nb.base.errors import CallError, DomainError, ExecutionError, ShapeError
from timerl_nb.runtime.state.checkpoint_writer import write_checkpoint

ARRAYS = {"actor.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.int32([7])}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_checkpoint(str(tmp_path), {"i": 9}, ARRAYS)


def test_a_plain_dict_of_arrays_of_ones_own(file: Path) -> None:
    found = trl.load(file)
    assert type(found) is dict and found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    found["actor.weight"] += 1
    np.testing.assert_array_equal(trl.load(str(file))["actor.weight"], ARRAYS["actor.weight"])


def test_no_flipped_bit_is_read(file: Path, tmp_path: Path) -> None:
    """Each flipped bit causes an error, or leaves the arrays unchanged."""
    content, other = file.read_bytes(), tmp_path / "flipped.safetensors"
    refused = 0
    for at in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[at // 8] ^= 1 << at % 8
        other.write_bytes(flipped)
        try:
            found = trl.load(other)
        except ExecutionError as error:
            refused += 1
            assert "flipped.safetensors" in error.what
        else:
            assert found.keys() == ARRAYS.keys()
            assert all(np.array_equal(found[n], x) for n, x in ARRAYS.items())
    values = 8 * sum(x.nbytes for x in ARRAYS.values())
    assert values < refused < len(content) * 8
    flipped = bytearray(content)
    flipped[-1] ^= 1
    other.write_bytes(flipped)
    with pytest.raises(ExecutionError, match="is damaged: 'n' does not match"):
        trl.load(other)


def test_no_file_that_is_cut_off_is_read(file: Path, tmp_path: Path) -> None:
    content, other = file.read_bytes(), tmp_path / "cut.safetensors"
    for size in range(len(content)):
        other.write_bytes(content[:size])
        with pytest.raises(ExecutionError, match=r"cut.safetensors is damaged"):
            trl.load(other)
    other.write_bytes(content[:-1])
    with pytest.raises(ExecutionError, match="it is truncated: 'n' ends at byte 28 of 27"):
        trl.load(other)
    other.write_bytes(content + b"\0")
    with pytest.raises(ExecutionError, match="is damaged"):
        trl.load(other)


def of_header(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged: it is empty"),
        (
            b"\x89PNG\r\n\x1a\n" + bytes(30),
            "is not a checkpoint: it does not begin like a safetensors",
        ),
        (npz(), "is not a checkpoint"),
        (pickle.dumps({"x": np.ones(3)}), "is not a checkpoint"),
        (of_header([1]), "is not a checkpoint"),
        (b"\x05" + bytes(7) + b"{nope", "its header is not JSON"),
        (of_header({"w": 3}), "'w' has the element type None, which TimeRL-nb does not have"),
        (
            of_header({"w": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"x"),
            "'w' has the element type 'F8_E4M3'",
        ),
        (
            of_header({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
            r"'w' has the shape \[-1\] and the byte range \[0, 4\]",
        ),
        (
            of_header({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)),
            r"'w', F32 \[2\], does not fit its 4 bytes",
        ),
        (
            of_header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)),
            "its header is inconsistent",
        ),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "other.safetensors"
    path.write_bytes(content)
    with pytest.raises(ExecutionError, match=said) as failed:
        trl.load(path)
    assert "other.safetensors" in failed.value.what and "test_loading.py" in str(failed.value)


def test_files_of_others_that_are_safetensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    path.write_bytes(safetensors({"x": np.float16([1, 2])}, metadata={"format": "pt"}))
    np.testing.assert_array_equal(trl.load(path)["x"], np.float16([1, 2]))


def test_what_is_no_file_says_what_there_is(file: Path) -> None:
    with pytest.raises(ExecutionError, match="i=3.* does not exist") as failed:
        trl.load(file.with_name("i=3.safetensors"))
    assert "its folder contains the checkpoints i=9.safetensors." in str(failed.value)
    with pytest.raises(ExecutionError, match="is a folder") as failed:
        trl.load(file.parent)
    assert failed.value.hint == "it contains the checkpoints i=9.safetensors."
    with pytest.raises(ExecutionError, match="does not exist") as failed:
        trl.load(file.parent / "no" / "such")
    assert not failed.value.hint
    for wrong in (3, "", None, b"x"):
        with pytest.raises(CallError, match="is not a file name"):
            trl.load(wrong)


# --- networks with initial values ---------------------------------------------------------------


def following(folder: Path | None, load: Any = None, *, late: bool = False) -> trl.Context:
    """A network that fits data, with a checkpoint at i = 3; its values are loaded first or last."""
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.MLP([3, 4, 1], domain=(i,), name="net")
        if load is not None and not late:
            assert net.load(load) is net
        x = trl.random.normal((3,), domain=(i,))
        loss = (net(x) - x.sum()).square().sum()
        loss.backward()
        trl.optim.SGD(net.params, lr=0.1).step()
        if folder is not None:
            net[i == 3].checkpoint(folder)
        ctx.output("loss", loss)
        for p in net.params:
            ctx.output(p.name, p)
        if late:
            net.load(load)
    return ctx


def test_a_network_starts_from_a_checkpoint_or_a_mapping(tmp_path: Path) -> None:
    first = following(tmp_path).compile({"I": 6}).execute(seed=4)
    for values in (tmp_path / "i=3.safetensors", trl.load(tmp_path / "i=3.safetensors")):
        again = following(None, values).compile({"I": 2}).execute(seed=9)
        for name in first.parameters:
            np.testing.assert_array_equal(again[name][0], first[name][4], err_msg=name)
            assert not np.array_equal(again[name][1], again[name][0])
    late = following(None, values, late=True).compile({"I": 2}).execute(seed=9)
    assert all(np.array_equal(late[name], again[name]) for name in again)
    last = following(None, first.parameters).compile({"I": 1}).execute()
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(last[name][0], value)


def test_other_draws_stay_what_they_were(tmp_path: Path) -> None:
    """Omitted initial draws do not shift the others."""
    first = following(tmp_path).compile({"I": 5}).execute(seed=4)
    zeros = {name: np.zeros_like(x) for name, x in first.parameters.items()}
    program = following(None, zeros).compile({"I": 1})
    have = program.execute(seed=4)
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        trl.nn.MLP([3, 4, 1], domain=(i,), name="net")  # the same draws before it
        ctx.output("loss", trl.random.normal((3,), domain=(i,)).sum().square())
    want = ctx.compile({"I": 1}).execute(seed=4)
    np.testing.assert_allclose(have["loss"], want["loss"], rtol=1e-6)


def test_an_ensemble_starts_from_a_value_for_each(tmp_path: Path) -> None:
    with trl.Context("k", "i") as ctx:
        (k, _), (i, _) = ctx.dims
        net = trl.nn.Linear(1, 1, domain=(k, i), name="net")
        net.load({"net.weight": np.array([[[2.0]], [[3.0]]]), "net.bias": np.zeros(1)})
        loss = net(trl.constant([1.0]).floating()).sum()
        loss.backward()
        trl.optim.SGD(net.params, lr=1.0).step()
        ctx.output("w", net.weight)
    result = ctx.compile({"K": 2, "I": 3}).execute()
    np.testing.assert_allclose(result["w"][..., 0, 0], [[2, 1, 0], [3, 2, 1]])


def test_differences_are_all_listed(tmp_path: Path) -> None:
    values = {
        "net.0.weight": np.zeros((3, 5)),
        "net.0.bias": np.zeros(4),
        "net.1.weight": np.zeros((4, 1), np.complex64),
        "other": np.zeros(1),
    }
    with pytest.raises(ShapeError) as failed:
        following(None, values)
    assert "the mapping does not match 4 of the network's parameters" in failed.value.what
    assert failed.value.evidence == (
        "net.1.bias is missing",
        "other is not a parameter of the network",
        "net.0.weight is float64[3,5], but must be f32[3,4]",
        "net.1.weight is complex64[4,1], but must be f32[4,1]",
    )
    path = write_checkpoint(str(tmp_path), {"i": 0}, {"x": np.zeros(2)})
    with pytest.raises(ShapeError, match=r"the checkpoint .*i=0.safetensors does not match"):
        following(None, path)


# --- networks with other values ------------------------------------------------------------------


def test_a_target_network_by_another_networks_parameters() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.MLP([2, 3, 1], domain=(i,), name="net")
        other = trl.nn.MLP([2, 3, 1], domain=(i,), name="other")
        x = trl.random.normal((2,), domain=(i,))
        target = net.with_values(other)
        assert [p.name for p in target.params] == [p.name for p in other.params]
        ctx.output("target", target(x))
        ctx.output("other", other(x))
        ctx.output("net", net(x))
    result = ctx.compile({"I": 3}).execute()
    np.testing.assert_array_equal(result["target"], result["other"])
    assert not np.allclose(result["target"], result["net"])


def test_an_average_that_follows_a_network() -> None:
    """A mapping by name, with tensors defined freely."""
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.Linear(1, 1, domain=(i,), name="net")
        followed: dict[str, Any] = {}
        for p in net.params:
            mean = followed[p.name] = trl.like(p)
            mean[0] = p[0]
            mean[i + 1] = 0.5 * mean + 0.5 * p[i + 1]
        average = net.with_values(followed)
        assert average.params == []
        one = trl.constant([1.0])
        loss = (net(one) - 3.0).square().sum()
        loss.backward()
        trl.optim.SGD(net.params, lr=0.1).step()
        ctx.output("net", net(one))
        ctx.output("average", average(one))
    result = ctx.compile({"I": 6}).execute()
    want = result["net"][0]
    for k in range(6):
        want = result["net"][0] if k == 0 else 0.5 * want + 0.5 * result["net"][k]
        np.testing.assert_allclose(result["average"][k], want, rtol=1e-5)


def test_a_target_network_follows_and_is_saved(tmp_path: Path) -> None:
    """Untrained parameters: each step moves them a tenth towards the learned ones."""
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.Linear(1, 1, domain=(i,), name="net")
        held = {
            p.name: trl.parameter(p[0], domain=(i,), name=f"target.{p.name}", trainable=False)
            for p in net.params
        }
        for p in net.params:
            held[p.name].update(held[p.name] * 0.9 + p.next * 0.1)
        target = net.with_values(held)
        one = trl.constant([1.0])
        (net(one) - 3.0).square().sum().backward()
        trl.optim.SGD(net.params, lr=0.1).step()
        target.checkpoint(tmp_path)
        ctx.output("target", target(one))
        ctx.output("next", net.with_values([p.next for p in net.params])(one))
        ctx.output("net", net(one))
    result = ctx.compile({"I": 5}).execute()
    np.testing.assert_allclose(result["next"][:-1], result["net"][1:], rtol=1e-6)
    np.testing.assert_array_equal(result["target"][0], result["net"][0])
    for k in range(4):
        want = 0.9 * result["target"][k] + 0.1 * result["next"][k]
        np.testing.assert_allclose(result["target"][k + 1], want, rtol=1e-5)
    saved = trl.load(tmp_path / "i=4.safetensors")
    assert set(saved) == {"target.net.weight", "target.net.bias"}
    np.testing.assert_array_equal(saved["target.net.bias"], result.parameters["target.net.bias"])


def test_fast_weights_are_a_step_of_their_own_for_every_task() -> None:
    with trl.Context("k", "i") as ctx:
        (k, _), (i, _) = ctx.dims
        net = trl.nn.Linear(1, 1, domain=(i,), name="net")
        net.load({"net.weight": [[1.0]], "net.bias": [0.0]})
        goal = trl.value(k).floating()
        one = trl.constant([1.0])
        inner = (net(one).sum() - goal).square()
        w, b = net.params
        fast = net.with_values([w - 0.25 * 2.0 * (net(one).sum() - goal), b])
        assert fast.weight.domain == ("k", "i")
        ctx.output("before", inner)
        ctx.output("after", (fast(one).sum() - goal).square())
    result = ctx.compile({"K": 3, "I": 1}).execute()
    np.testing.assert_allclose(result["before"][:, 0], [1, 0, 1])
    np.testing.assert_allclose(result["after"][:, 0], [0.25, 0, 0.25])


def test_a_policy_with_other_values_acts_by_them() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[4]).build()
        o = trl.random.normal((4,), domain=(i, t))
        dnn(o)  # its layers differ from the other's
        zeros = {p.name: np.zeros(p.shape) for p in dnn.params}
        ctx.output("logits", dnn.with_values(zeros)(o).logits)
        ctx.output("own", dnn(o).logits)
    result = ctx.compile({"I": 1, "T": 3}).execute()
    np.testing.assert_array_equal(result["logits"], 0)
    assert result["own"].any()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda net: net.params[:1], "the network has 2 parameters, but 1 are given"),
        (lambda net: {"net.weight": net.weight}, "net.bias is missing"),
        (lambda net: [net.weight, net.weight], r"net.bias is f32\[2,1\], but must be f32\[1\]"),
        (lambda net: {"net.weight": 0.0, "net.bias": 0.0}, r"net.weight is f32\[\], but must be"),
        (lambda net: 3, "3 is not a network, a mapping by name or a list"),
    ],
)
def test_values_that_are_not_the_networks(other: Callable[[Any], Any], said: str) -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.Linear(2, 1, domain=(i,), name="net")
        with pytest.raises(trl.errors.TimeRLError) as failed:
            net.with_values(other(net))
        assert said.replace("\\", "") in str(failed.value) and "test_loading.py" in str(
            failed.value
        )
        with pytest.raises(ShapeError, match="the network has no parameters"):
            net[0].load({})


def test_loading_belongs_inside_the_program() -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        net = trl.nn.Linear(1, 1, domain=(i,), name="net")
        ctx.output("w", net.weight)
    net.load({"net.weight": [[5.0]], "net.bias": [0.0]})  # also later, as in a notebook
    np.testing.assert_array_equal(ctx.compile({"I": 1}).execute()["w"], [[[5.0]]])
    with pytest.raises(DomainError):
        net.with_values({"net.weight": [[5.0]], "net.bias": [0.0]})
