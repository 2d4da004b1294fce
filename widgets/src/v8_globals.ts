// Browser globals that Graphviz's glue code requires and that bare V8 lacks.

class Utf8Decoder {
  decode(bytes?: ArrayBufferView): string {
    if (!bytes) return "";
    const { buffer, byteOffset, byteLength } = bytes;
    const raw = new Uint8Array(buffer, byteOffset, byteLength);
    const points: string[] = [];
    for (let at = 0; at < raw.length;) {
      const first = raw[at++]!;
      const more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
      let code = more ? first & (0x3f >> more) : first;
      for (let k = 0; k < more; k++) code = (code << 6) | (raw[at++]! & 0x3f);
      points.push(String.fromCodePoint(code));
    }
    return points.join("");
  }
}

class Address {
  constructor(readonly href: string) {}
}

const missing: Record<string, unknown> = {
  self: globalThis,
  location: { href: "file:///" },
  performance: { now: () => Date.now() },
  TextDecoder: Utf8Decoder,
  URL: Address,
};
for (const [name, value] of Object.entries(missing)) {
  if (!(name in globalThis)) Object.assign(globalThis, { [name]: value });
}

export {};
