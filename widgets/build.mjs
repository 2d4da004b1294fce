// Bundles each file of src/entries to a module for the page, and one bundle that Python's V8 runs without a page.
// With --watch, it builds again after each change. With ANYWIDGET_HMR=1, open notebooks reload the bundles.
import { readdirSync } from "node:fs";
import * as esbuild from "esbuild";

const watch = process.argv.includes("--watch");
const common = {
  bundle: true,
  charset: "utf8",
  legalComments: "eof",
  loader: { ".css": "text" },
  logLevel: "warning",
  minify: !watch,
  sourcemap: watch ? "inline" : false,
  target: "es2022",
};
const entries = readdirSync("src/entries").map((name) => `src/entries/${name}`);
const bundles = [
  { ...common, entryPoints: entries, format: "esm", outdir: "timerl_widgets/static" },
  {
    ...common,
    entryPoints: ["src/offline_rendering.ts"],
    format: "iife",
    outfile: "../timerl_nb/show/static/offline_rendering.js",
  },
];
for (const bundle of bundles) {
  if (watch) await (await esbuild.context(bundle)).watch();
  else await esbuild.build(bundle);
}
