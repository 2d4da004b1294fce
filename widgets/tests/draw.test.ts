import assert from "node:assert/strict";
import test from "node:test";
import { draw } from "../src/draw/draw";
import { INK, addTheme, removeTheme } from "../src/draw/theme_colours";
import { shape, addTitle, writeShape } from "../src/draw/shapes";
import { arrange, drawText } from "../src/draw/sheet";
import { runIn, runText } from "../src/draw/whole_run";
import type { Stretch, WholeRun } from "../src/models";
import { counts, ticks } from "../src/shared/plot";

test("ticks are round", () => {
  assert.deepEqual(ticks(0, 500), [0, 100, 200, 300, 400, 500]);
  assert.deepEqual(ticks(0, 0), [0]);
  assert.deepEqual(counts(0, 3, 8), [0, 1, 2, 3]);
  assert.equal(ticks(0, 2 ** 21, 5, 1024)[1], 2 ** 19);
  assert.deepEqual(ticks(1, 1 + Number.EPSILON), [1]); // beyond what numbers can tell apart
});

test("any drawn text is escaped", () => {
  const one = shape("text", { x: 1 / 3, class: undefined, fill: INK, id: `"<&>` }, "<b>\u0000&");
  const text = '<text x="0.33" fill="#222222" id="&quot;&lt;&amp;&gt;">&lt;b&gt;\ufffd&amp;</text>';
  assert.equal(writeShape(one), text);
  assert.equal(writeShape(addTitle(shape("path"), "a<b")), "<path><title>a&lt;b</title></path>");
});

test("a view without a drawing becomes its first lines of text", () => {
  const lines = Array.from({ length: 300 }, (_, k) => `line ${k} <`).join("\n");
  const picture = draw({ view: "text" }, lines);
  assert.match(picture, /^<svg class="trl-static" .*line 118 &lt;.*… and 181 lines more/);
  assert.doesNotMatch(picture, /line 119/);
});

test("pictures in rows keep their sizes, and have one theme", () => {
  const [a, b] = [drawText("a", 9), drawText("b\nb", 9)];
  const graph = addTheme('<svg width="30pt" height="12pt" viewBox="0 0 30 12"></svg>');
  const declared = `<?xml version="1.0"?>\n${graph}`; // as other programs write them
  const rows = [
    [
      { title: "first <", picture: a },
      { title: "", picture: b },
    ],
    [{ title: "", picture: declared }],
  ];
  const whole = arrange(rows);
  assert.equal(whole.split("<style>").length, 2);
  assert.equal(whole.split("<svg").length, 5);
  assert.match(whole, /first &lt;/);
  assert.doesNotMatch(whole, /xml version/);
  const size = (text: string, name: string) =>
    Number(new RegExp(` ${name}="(\\d+)`).exec(text)![1]);
  assert.equal(size(whole, "width"), size(a, "width") + size(b, "width") + 3 * 12);
  assert.equal(size(whole, "height"), 22 + size(b, "height") + 16 + 3 * 12);
  assert.equal(removeTheme(graph), '<svg width="30pt" height="12pt" viewBox="0 0 30 12"></svg>');
});

const stretch = (first: number, last: number, bytes: number[], turns = 0, more = 0): Stretch => {
  const note = turns ? `× ${turns} turns` : "";
  return { first, last, bytes: Float64Array.from(bytes), turns, more, note };
};

test("repeated turns become a labelled break, and the drawing fits its box", () => {
  const steady = stretch(10, 20, [50, 100], 900, 64);
  const run: WholeRun = {
    points: 9020,
    stretches: [stretch(0, 10, [10, 20]), steady, stretch(9010, 9020, [100, 40])],
    first: 9010,
    last: 9020,
  };
  const box = { left: 50, top: 10, width: 400, height: 40 };
  const text = writeShape(shape("g", {}, ...runIn(run, box, 100)));
  assert.equal(text.match(/trl-run-area/g)!.length, 3);
  assert.equal(text.match(/trl-break/g)!.length, 1);
  assert.match(text, />× 900 turns<\/text>/);
  assert.match(text, /900 equal turns, of which one is drawn, 64 B more live after them/);
  assert.match(text, />9,020<\/text>/); // where it ends
  const across = [...text.matchAll(/[HM]([\d.]+)/g)].map(([, x]) => Number(x));
  assert.ok(Math.min(...across) >= 50 - 5 && Math.max(...across) <= 450 + 5);
  const up = [...text.matchAll(/V([\d.]+)/g)].map(([, y]) => Number(y));
  assert.equal(Math.min(...up), 10); // the most is as high as the box
  const bar = /<rect class="trl-here" x="([\d.]+)"[^>]* width="([\d.]+)"/.exec(text)!;
  assert.ok(Math.abs(Number(bar[1]) + Number(bar[2]) - 450) < 1); // the last of the stretches
  assert.equal(
    runText(run),
    "live bytes of the whole run, 9,020 executed points; × 900 turns, drawn once",
  );
  const whole = { ...run, stretches: [stretch(0, 9020, [1, 2])] };
  assert.doesNotMatch(writeShape(shape("g", {}, ...runIn(whole, box, 2))), /trl-break/);
});
