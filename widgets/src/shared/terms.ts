// Explanations of the explorer's figures, as tooltips. The glossary of the documentation has longer ones.
import { html } from "./markup";

const TERMS: Record<string, string> = {
  // a run
  turn: "completed iterations of the outermost loop",
  elapsed: "time since the start of the run, with pauses",
  "turns/s": "iterations of the outermost loop per second, over about the last second",
  "steps/s": "environment steps per second, summed over all environments",
  "in kernels":
    "share of an iteration's time that is spent in kernels, measured about once a second",
  host: "processor cores that this process keeps busy",
  "planned peak": "largest number of live bytes of a run, computed before it",
  live: "bytes of values that are computed and still needed",
  "XLA's buffers": "bytes of all buffers that XLA's program has during the whole run",
  "arrays on the device": "bytes of this process's arrays in the device's memory",
  process: "resident memory of this process: Python, XLA and all arrays",
  // memory
  carried: "bytes of values that pass from one kernel to another",
  temporaries: "bytes that kernels need only while they run",
  constants: "bytes of arrays that are given to the program",
  needed: "memory of the program: carried values, temporaries and constants",
  planned: "exact, from the memory plan",
  "laid out": "exact, from the buffers of XLA's program",
  estimated: "an estimate before XLA compiles",
  given: "the size of arrays that the program received",
  stated: "reported by XLA after compilation",
  measured: "measured in a run",
  values: "number of live values of the tensor",
  "at most": "largest number of live bytes of the tensor",
  "last read by": "kernels that read a value last; its memory is free after them",
  // time
  instant: "position in the drawn iteration: one execution of one kernel",
  // stages
  reused: "computed during a search, so this stage took no further time",
};

/** The explanation of a term; undefined for an unknown one. */
export function explain(term: string): string | undefined {
  return TERMS[term];
}

/** A text with the explanation of a term as its tooltip. */
export function term<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text: string,
  of = text,
  attributes = {},
): HTMLElementTagNameMap[K] {
  const title = explain(of);
  return html(tag, { ...attributes, title, class: title && "trl-term" }, text);
}
