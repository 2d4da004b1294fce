"""Names of a graph's operations and tensors, used by every text and view.

A name is the user's label, or it describes the operation: `r.sum` is a sum of `r`, and `w.init` is the
initial value of `w`. Names are unique. Equal names are numbered in the graph's order, so two compilations
of a program agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Domain, Op, Output, Tensor
from timerl_nb.compiler.symbolic.index_expressions import Lin

_K = TypeVar("_K")
_Result = tuple[Tensor, str | None, Domain]
_RENAMING_KINDS = ("merge", "output")  # kinds that rename the result of another operation


class Names:
    """The names of a graph's operations, with those inside kernels."""

    def __init__(self, ops: Mapping[int, Op]) -> None:
        self._ops = ops
        self._inner = {one.id: one for op in ops.values() for one in op.body}
        self._around = {one.id: op for op in ops.values() for one in op.body}
        self._branches: dict[int, str] = {}
        for op_id, name in self._named_branches():
            self._branches.setdefault(op_id, name)  # many tensors may start with the same zeros
        self._outputs = self._named_outputs()
        self._names = self._named_ops()
        # without the operations inside kernels
        self.statements = {op_id: self._names[op_id] for op_id in ops}

    def __getitem__(self, op_id: int) -> str:
        """Return the name of an operation, inside or outside a kernel."""
        return self._names[op_id]

    def __contains__(self, op_id: int) -> bool:
        return op_id in self._names

    def output(self, op_id: int, out: int = 0) -> str:
        """Return the name of an output of an operation outside kernels."""
        return self._outputs[op_id, out]

    def outputs(self, op: Op) -> tuple[str, ...]:
        """Return the names of all outputs of an operation, inside or outside a kernel."""
        if op.id in self._ops:
            return tuple(self.output(op.id, out) for out in range(len(op.outputs)))
        return tuple(self._names[op.id] for _ in op.outputs)

    # --- operations ------------------------------------------------------------------------------

    def _named_ops(self) -> dict[int, str]:
        own = [op for op in self._ops.values() if op.kind not in _RENAMING_KINDS]
        renaming = [op for op in self._ops.values() if op.kind in _RENAMING_KINDS]
        kernels = Counter(op.label for op in own if _is_kernel(op))
        found = _number_duplicates((op.id, self._statement_name(op, kernels)) for op in own)
        inner = [op for op in self._inner.values() if op.id not in self._ops]
        # names inside kernels, or of merges, may equal the names of kernels, since they appear in other
        # places
        found |= _number_duplicates((op.id, self._plain(op)) for op in inner)
        return found | _number_duplicates((op.id, self._plain(op)) for op in renaming)

    def _statement_name(self, op: Op, kernels: Counter[str]) -> str:
        """Return the name of a statement; kernels with one label are distinguished by their results."""
        if not op.outputs or not _is_kernel(op) or (op.label and kernels[op.label] == 1):
            return self._plain(op)
        made = list(enumerate(self.outputs(op)))
        users = [name for out, name in made if self._label(op, out)] or [name for _, name in made]
        if len(made) == 1 or not op.label:
            return "+".join(dict.fromkeys(users[:2])) or op.kind
        return f"{op.label}.{users[0]}"

    def _label(self, op: Op, out: int) -> str:
        """Return the user's label of an output."""
        return op.outputs[out].label or self._producer(op.id, out).label

    def _plain(self, op: Op) -> str:
        if op.label:
            return op.label
        if op.id in self._branches:
            return self._branches[op.id]
        of = self._nearest_labels.get(op.id)
        return f"{of}.{op.kind}" if of else op.kind

    def _named_branches(self) -> Iterator[tuple[int, str]]:
        """Yield operations that define a tensor: `x'` for a recurrence, `x.init` for an initial value."""
        for merge in self._ops.values():
            for read in merge.inputs if merge.kind == "merge" and merge.label else ():
                made = self._producer(read.source, read.out)
                entries = [e for e in read.index if isinstance(e, Lin)]
                if any(e.symbols and e.const for e in entries):
                    yield made.id, f"{merge.label}'"
                elif len({s for e in entries for s in e.symbols}) < len(merge.domain):
                    yield made.id, f"{merge.label}.init"
                else:
                    yield made.id, merge.label

    @cached_property
    def _nearest_labels(self) -> Mapping[int, str]:
        """The nearest upstream label of each operation, if there is one."""
        ops = {**self._inner, **self._ops}
        operands = {k: [one.id for one in self._operands(op)] for k, op in ops.items()}
        readers: dict[int, list[int]] = {k: [] for k in ops}
        for k, before in operands.items():
            for one in before:
                readers[one].append(k)
        found = {k: op.label for k, op in ops.items() if op.label}
        level = list(found)
        while level:
            behind = [k for one in level for k in readers[one] if k not in found]
            last, level = set(level), list(dict.fromkeys(behind))
            for k in level:
                found[k] = next(found[one] for one in operands[k] if one in last)
        return found

    def _operands(self, op: Op) -> Iterator[Op]:
        around = self._around.get(op.id)
        for read in op.inputs:
            if around is not None and read.source == OPERAND:
                read = around.inputs[read.out]
            yield self._producer(read.source, read.out)

    def _producer(self, op_id: int, out: int) -> Op:
        """Return the operation that computes an output, inside or outside a kernel."""
        op = self._ops.get(op_id) or self._inner[op_id]
        if not isinstance(op.attrs, DataflowAttrs):
            return op
        source, inner = op.attrs.results[out]
        if source == OPERAND:
            read = op.inputs[inner]
            return self._producer(read.source, read.out)
        return self._inner[source]

    # --- tensors ---------------------------------------------------------------------------------

    def _named_outputs(self) -> dict[Tensor, str]:
        """Return the names of all outputs: values first, then sums, then copies for blocks."""
        found: dict[Tensor, str] = {}
        plain: list[tuple[Tensor, str]] = []
        summed: list[tuple[Tensor, str]] = []
        renaming: list[tuple[Tensor, str]] = []
        blocks: list[Tensor] = []
        for op in self._ops.values():
            seen: dict[_Result, Tensor] = {}
            for out, output in enumerate(op.outputs):
                tensor = op.id, out
                name = output.label or self._plain(self._producer(op.id, out))
                if isinstance(op.attrs, DataflowAttrs):
                    made = _result(op, out)
                    if seen.setdefault(made, tensor) != tensor:
                        blocks.append(tensor)
                        found[tensor] = name
                        continue
                elif len(op.outputs) > 1:
                    name += f".{out}"
                of = (
                    renaming
                    if op.kind in _RENAMING_KINDS
                    else summed
                    if _is_sum(op, output)
                    else plain
                )
                of.append((tensor, name))
        taken = {name for _, name in plain}
        summed = [
            (tensor, f"{name}.{self._ops[tensor[0]].outputs[tensor[1]].reduce}")
            if name in taken
            else (tensor, name)
            for tensor, name in summed
        ]
        numbered = _number_duplicates([*plain, *summed]) | _number_duplicates(renaming)
        for op_id, out in blocks:
            op = self._ops[op_id]
            results = [_result(op, k) for k in range(len(op.outputs))]
            numbered[op_id, out] = f"{numbered[op_id, results.index(results[out])]}[:]"
        return {tensor: numbered[tensor] for tensor in sorted(numbered)}


def _is_sum(op: Op, output: Output) -> bool:
    return output.reduce is not None and _is_kernel(op)


def _result(op: Op, out: int) -> _Result:
    """Return the content of a kernel's output: a value from inside, with its reduction."""
    assert isinstance(op.attrs, DataflowAttrs)
    output = op.outputs[out]
    return op.attrs.results[out], output.reduce, output.domain if output.reduce else ()


def _is_kernel(op: Op) -> bool:
    return isinstance(op.attrs, DataflowAttrs)


def _number_duplicates(named: Iterable[tuple[_K, str]]) -> dict[_K, str]:
    """Return unique names: the second use of a name gets the suffix 2, and so on."""
    found: dict[_K, str] = {}
    pairs = list(named)
    taken, counts = {name for _, name in pairs}, Counter[str]()
    for key, name in pairs:
        counts[name] += 1
        made = name
        while counts[name] > 1 and (made := f"{name}.{counts[name]}") in taken:
            counts[name] += 1
        taken.add(made)
        found[key] = made
    return found
