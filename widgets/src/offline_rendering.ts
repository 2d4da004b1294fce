// Program that Python runs in V8: Graphviz as WebAssembly, and the drawing code of the pages.
import "./v8_globals";
import { instance, type Viz } from "@viz-js/viz";
import { draw } from "./draw/draw";
import { addTheme } from "./draw/theme_colours";
import { arrange } from "./draw/sheet";

let viz: Viz | undefined;

async function load(): Promise<string> {
  viz ??= await instance();
  return viz.graphvizVersion;
}

/** The picture of a DOT text. */
function layout(dot: string): string {
  if (!viz) throw new Error("load() first");
  return addTheme(viz.renderString(dot, { format: "svg" }));
}

Object.assign(globalThis, { timerl: { arrange, draw, layout, load } });
