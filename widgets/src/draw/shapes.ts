// Drawings as plain values: `made` in markup.ts turns them into elements, `written` into text.

export type Attributes = Record<string, string | number | boolean | undefined>;

export interface Shape {
  readonly tag: keyof SVGElementTagNameMap;
  readonly attributes: Attributes;
  readonly children: readonly (Shape | string)[];
}

/** A description of an SVG element; strings among the children are text. See `attribute`. */
export function shape(
  tag: Shape["tag"],
  attributes: Attributes = {},
  ...children: (Shape | string)[]
): Shape {
  return { tag, attributes, children };
}

/** A shape with a tooltip. */
export function addTitle(one: Shape, title: string): Shape {
  return { ...one, children: [shape("title", {}, title), ...one.children] };
}

/** The text of an attribute; null omits it. */
export function attribute(value: Attributes[string]): string | null {
  if (value === undefined || value === false) return null;
  return value === true ? "" : String(value);
}

/** A shape as text. Colours given by CSS variables of a page are replaced by their defaults. */
export function writeShape({ tag, attributes, children }: Shape): string {
  let text = `<${tag}`;
  for (const [name, given] of Object.entries(attributes)) {
    const rounded = typeof given === "number" ? Math.round(given * 100) / 100 : given;
    const value = attribute(rounded)?.replace(/^var\([^,]+, *([^)]+)\)$/, "$1");
    if (value !== undefined) text += ` ${name}="${escapeText(value)}"`;
  }
  if (!children.length) return `${text}/>`;
  const inside = children.map((one) =>
    typeof one === "string" ? escapeText(one) : writeShape(one),
  );
  return `${text}>${inside.join("")}</${tag}>`;
}

const NAMED: Record<string, string> = { "<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;" };

function escapeText(text: string): string {
  // characters that XML 1.0 cannot represent
  return text
    .replace(/[<>&"]/g, (one) => NAMED[one]!)
    .replace(/[^\t\n\r\u0020-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
}
