import assert from "node:assert/strict";
import { test } from "node:test";
import { foldKeys } from "../src/shared/folds";

const line = (depth: number, text: string) => ({ depth, text });

test("loops with equal text fold separately and keep their keys", () => {
  const loop = line(1, "for c1 in range(0, 12):");
  const before = foldKeys([line(0, "for c0 in range(0, 4):"), loop, line(2, "a(c0, c1)"), loop]);
  assert.equal(new Set(before).size, 4);
  const after = foldKeys([line(0, "for c0 in range(0, 9):"), loop, loop]);
  assert.deepEqual([after[1], after[2]], [before[1], before[3]]);
});
