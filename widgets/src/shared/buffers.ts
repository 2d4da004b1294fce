// View-models as received: JSON, with long arrays in separate binary buffers.

/** A model as packed by Python: `json` contains a `Placeholder` for each array. */
export interface Packed {
  readonly json?: unknown;
  readonly buffers?: readonly DataView[];
}

interface Placeholder {
  readonly buffer: number;
  readonly dtype: "int32" | "uint8" | "float32" | "float64";
  readonly shape: readonly number[];
}

/** The numbers of an array in row-major order. */
export type Numbers = Int32Array | Uint8Array | Float32Array | Float64Array;

const unpacked = new WeakMap<Packed, unknown>();

/** A packed model with its arrays inserted, always the same object; null before the first message. */
export function unpack<Model>(packed: Packed): Model | null {
  if (packed.json === undefined) return null;
  if (!unpacked.has(packed)) unpacked.set(packed, fill(packed.json, packed.buffers ?? []));
  return unpacked.get(packed) as Model;
}

function fill(value: unknown, buffers: readonly DataView[]): unknown {
  if (Array.isArray(value)) return value.map((one) => fill(one, buffers));
  if (typeof value !== "object" || value === null) return value;
  if (isPlaceholder(value)) return numbers(value, buffers[value.buffer]!);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, fill(one, buffers)]));
}

function isPlaceholder(value: object): value is Placeholder {
  return "buffer" in value && "dtype" in value && "shape" in value;
}

function numbers({ dtype }: Placeholder, view: DataView): Numbers {
  // copied, since a buffer may start at an unaligned offset
  const bytes = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  if (dtype === "int32") return new Int32Array(bytes);
  if (dtype === "uint8") return new Uint8Array(bytes);
  return dtype === "float32" ? new Float32Array(bytes) : new Float64Array(bytes);
}
