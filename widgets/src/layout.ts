// The layout program that Python runs in V8: Graphviz as WebAssembly, from DOT to SVG.
import "./bare";
import { instance, type Viz } from "@viz-js/viz";

let viz: Viz | undefined;

async function load(): Promise<string> {
  viz ??= await instance();
  return viz.graphvizVersion;
}

function layout(dot: string): string {
  if (!viz) throw new Error("load() first");
  return viz.renderString(dot, { format: "svg" });
}

Object.assign(globalThis, { timerl: { load, layout } });
