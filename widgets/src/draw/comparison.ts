// Two programs next to each other on common axes, with their differences.
import type { ComparisonView } from "../models";
import { formatBytes, formatSeconds, formatCount } from "../shared/plot";
import { formatOption } from "../shared/option_values";
import { memory } from "./memory";
import { arrange, drawText } from "./sheet";
import { space } from "./space";

type Pair<T> = [T, T];

/** One difference: a property with its value in both programs. */
export interface Row {
  readonly group: string;
  readonly name: string;
  readonly texts: Pair<string>;
}

/** The view as a picture. */
export function comparison(view: ComparisonView): string {
  const { time, up, bytes } = view.axes;
  const [titles, rows] = [view.titles, rowsOf(view)];
  const spaces = view.spaces.flatMap((one, k) => {
    const picture = () => space(one, "", { count: time, size: up });
    return one.turn.dim === null ? [] : [{ title: titles[k]!, picture: picture() }];
  });
  const held = view.memories.map((one, k) => {
    const title = spaces.length ? "" : titles[k]!;
    return { title, picture: memory(one, { count: time, bytes }) };
  });
  const wide = Math.max(...rows.map(({ name }) => name.length), 0) + 2;
  const column = Math.max(...rows.map(({ texts }) => texts[0].length), titles[0].length) + 2;
  const line = (name: string, [first, second]: readonly [string, string]) =>
    name.padEnd(wide) + first.padEnd(column) + second;
  const loops = view.loops.map(({ sign, text }) => `${sign} ${text}`);
  const differ = [line("", titles), ...rows.map(({ name, texts }) => line(name, texts))];
  const text = [...differ, "", "loop nests:", ...loops].join("\n");
  return arrange([spaces, held, [{ title: "", picture: drawText(text, 120) }]]);
}

function plain(value: unknown): string {
  return typeof value === "object" ? formatOption(value) : String(value);
}

/** All differences, and the peaks. */
export function rowsOf(model: ComparisonView): Row[] {
  const rows: Row[] = [];
  const add = <T>(group: string, name: string, pair: Pair<T>, text: (value: T) => string) => {
    const texts = pair.map((value) => (value === null ? "–" : text(value))) as Pair<string>;
    rows.push({ group, name, texts });
  };
  add("memory", "predicted peak", model.peak, formatBytes);
  const ways = model.memories.map((memory) =>
    Object.keys(memory.saved_by).join(", "),
  ) as Pair<string>;
  if (ways[0] !== ways[1]) add("memory", "memory saved by", ways, (text) => text || "nothing");
  if (model.host_peak.some((n) => n > 0)) add("memory", "host peak", model.host_peak, formatBytes);
  for (const { name, values } of model.options) add("options", name, values, plain);
  for (const { name, values } of model.bounds) add("bounds", name, values, String);
  for (const { name, operations, outputs } of model.kernels) {
    const both = operations.map((n, k) =>
      n === null ? null : `${formatCount(n, "operation")}, ${formatCount(outputs[k]!, "output")}`,
    );
    add("kernels", `kernel ${name}`, both as Pair<string | null>, String);
  }
  for (const { name, kinds, bytes: sizes } of model.stores) {
    const both = kinds.map((kind, k) =>
      kind === null ? null : `${kind}, ${formatBytes(sizes[k]!)}`,
    );
    add("stores", `store ${name}`, both as Pair<string | null>, String);
  }
  for (const { stage, kind, counts } of model.operations) {
    add("operations", `${kind} in ${stage}`, counts, String);
  }
  const total = ([0, 1] as const).map((k) =>
    model.seconds.reduce((sum, { seconds: pair }) => sum + (pair[k] ?? 0), 0),
  );
  add("time", "compiled in", total as Pair<number>, formatSeconds);
  return rows;
}
