// Options as users write them: `all`, `b, i`, `t: 64`, `512MiB`, and as Python expects them.

/** An option's value as text. */
export function formatOption(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (value === true) return "all";
  if (value === false) return "off";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "object") {
    return Object.entries(value)
      .map(([name, size]) => `${name}: ${size}`)
      .join(", ");
  }
  return String(value);
}

/** The value of a text for a kind of option; Python validates it. */
export function parseOption(kind: string, text: string): unknown {
  const given = text.trim();
  const off = /^(off|none|false)$/i.test(given);
  switch (kind) {
    case "int":
      return Number(given);
    case "bytes":
      return given || null;
    case "dims":
      if (!given || /^(all|true)$/i.test(given)) return true;
      return off ? false : names(given);
    case "blocks": {
      if (!given || given === "auto") return "auto";
      if (off) return false;
      if (!given.includes(":")) return Number.isNaN(Number(given)) ? given : Number(given);
      const pairs = names(given).map((pair) => pair.split(":").map((part) => part.trim()));
      return Object.fromEntries(pairs.map(([name, size]) => [name, Number(size)]));
    }
    default:
      return given;
  }
}

function names(text: string): string[] {
  return text
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
}
