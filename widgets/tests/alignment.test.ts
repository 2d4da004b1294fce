import assert from "node:assert/strict";
import { test } from "node:test";
import { align } from "../src/run/alignment";

test("each curve keeps its x positions", () => {
  const often = { at: new Float64Array([0, 1, 2, 3]), values: new Float64Array([5, 6, NaN, 8]) };
  const late = { at: [1, 3, 4], values: [10, 30, 40] };
  const { at, values } = align([often, late]);
  assert.deepEqual(at, [0, 1, 2, 3, 4]);
  assert.deepEqual(values[0], [5, 6, NaN, 8, undefined]);
  assert.deepEqual(values[1], [undefined, 10, undefined, 30, 40]);
});

test("without curves there are no positions", () =>
  assert.deepEqual(align([]), { at: [], values: [] }));
