import assert from "node:assert/strict";
import { test } from "node:test";
import { Selection } from "../src/shared/selection";

// 1 and 2 were written; 3 came from 1; kernel 9 was fused from 3 and 2; 4 is a copy of 1
const PARENTS = { 3: [1], 4: [1], 9: [3, 2] };

function selected(...ids: number[]): Selection {
  const selection = new Selection();
  selection.descend(PARENTS);
  selection.choose(ids);
  return selection;
}

test("ancestors and descendants are related, siblings are not", () => {
  assert.deepEqual([...selected(3).related].sort(), [1, 3, 9]);
  assert.deepEqual([...selected(1).related].sort(), [1, 3, 4, 9]);
  assert.deepEqual([...selected(9).related].sort(), [1, 2, 3, 9]);
  assert.ok(selected(3).marks([8, 9]));
  assert.ok(!selected(3).marks([2, 4]));
});

test("marking a kernel does not mark others with its operations", () => {
  const selection = new Selection();
  selection.descend({}, { 8: [1, 2], 9: [1, 3] });
  selection.click([8, 1, 2]);
  assert.deepEqual([...selection.ids], [8]);
  assert.ok(selection.marks([8, 1, 2]) && !selection.marks([9, 1, 3]));
  assert.ok(selection.marks([1]) && !selection.marks([3]));
  selection.click([1]);
  assert.ok(selection.marks([8, 1, 2]) && selection.marks([9, 1, 3]));
});

test("relatives of a running operation run at its instant", () => {
  const selection = selected();
  selection.follow((instant) => (instant === 4 ? [9] : []));
  assert.ok(!selection.runs([9]));
  selection.at(4);
  assert.ok(selection.runs([9]) && selection.runs([3]) && !selection.runs([4]));
});

test("an operation running in another kernel does not make an item run", () => {
  const selection = new Selection();
  selection.descend({ 3: [1], 4: [2], 5: [2] }, { 10: [3, 4], 11: [4, 5] });
  selection.follow(() => [10]);
  selection.at(0);
  assert.ok(selection.runs([3, 4]) && selection.runs([1, 2]) && selection.runs([4]));
  assert.ok(!selection.runs([4, 5]) && !selection.runs([11]));
});

test("lineage may go in circles", () => {
  const selection = new Selection();
  selection.descend({ 1: [2], 2: [1] });
  selection.choose([1]);
  assert.deepEqual([...selection.related], [1, 2]);
});

test("a selection uses lineage that arrives later", () => {
  const selection = new Selection();
  selection.choose([3]);
  assert.ok(!selection.marks([1]));
  selection.descend(PARENTS);
  assert.ok(selection.marks([1]));
});

test("a click selects, shift adds, a second click deselects", () => {
  const selection = selected();
  selection.click([1, 2]);
  selection.click([3], true);
  assert.deepEqual([...selection.ids], [1, 2, 3]);
  selection.click([2, 1], true);
  assert.deepEqual([...selection.ids], [3]);
  selection.click([3]);
  assert.deepEqual([...selection.ids], []);
});

test("listeners are called after changes until they unsubscribe", () => {
  const selection = selected();
  const heard: string[] = [];
  const leave = selection.subscribe((change) => heard.push(change));
  selection.choose([1]);
  selection.choose([1]);
  selection.at(4);
  selection.at(4);
  leave();
  selection.choose([]);
  assert.deepEqual(heard, ["ids", "instant"]);
});

test("a tensor is one output of its operation", () => {
  const selection = new Selection();
  selection.descend({}, { 9: [1, 2], 8: [3] });
  const made = (out: number, behind: number) => ({
    tensor: [9, out] as const,
    op_ids: [behind, 9],
    read_by: [8],
  });
  const [a, b, other] = [made(0, 1), made(1, 1), made(2, 2)];
  let told = 0;
  selection.subscribe(() => (told += 1));
  const held = () => [a, b, other].map((one) => selection.holds(one));
  selection.pick(a);
  assert.deepEqual([[...selection.ids], held()], [[1], [true, false, false]]);
  assert.ok(selection.marks([9, 1, 2]) && !selection.marks([8, 3]));
  assert.ok(selection.reads([8, 3]) && !selection.reads([9, 1, 2]));
  selection.pick(b);
  assert.deepEqual([[...selection.ids], held(), told], [[1], [false, true, false], 2]);
  selection.pick(other, true);
  assert.deepEqual(
    [[...selection.ids], held()],
    [
      [1, 2],
      [false, true, true],
    ],
  );
  selection.pick(b, true);
  assert.deepEqual([[...selection.ids], held()], [[2], [false, false, true]]);
  selection.pick(other);
  assert.deepEqual([[...selection.ids], held()], [[], [false, false, false]]);
  selection.click([9, 1, 2]);
  assert.deepEqual([[...selection.ids], held()], [[9], [true, true, true]]);
  assert.ok(!selection.reads([8, 3]));
});

test("the visible range moves with the instant", () => {
  const selection = selected();
  const told: string[] = [];
  selection.zoom([4, 8]);
  selection.subscribe((change) => told.push(change));
  selection.at(6);
  assert.deepEqual(told, ["instant"]);
  selection.at(9);
  assert.deepEqual(selection.range, [6, 10]);
  selection.at(1);
  assert.deepEqual(selection.range, [1, 5]);
  selection.zoom(null);
  selection.at(9);
  assert.equal(selection.range, null);
});
