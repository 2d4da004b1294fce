// Drawings as plain values: elements in the page (`made` of markup.ts), text where there is none.

export type Attributes = Record<string, string | number | boolean | undefined>;

export interface Shape {
  readonly tag: keyof SVGElementTagNameMap;
  readonly attributes: Attributes;
  readonly children: readonly (Shape | string)[];
}

/** An SVG element to be; strings among the children are text. See `attribute`. */
export function shape(
  tag: Shape["tag"],
  attributes: Attributes = {},
  ...children: (Shape | string)[]
): Shape {
  return { tag, attributes, children };
}

/** A shape that says what it is where one points at it. */
export function titled(one: Shape, title: string): Shape {
  return { ...one, children: [shape("title", {}, title), ...one.children] };
}

/** What the text of an attribute is; null leaves it out. */
export function attribute(value: Attributes[string]): string | null {
  if (value === undefined || value === false) return null;
  return value === true ? "" : String(value);
}

/** A shape as text; of colours that a page may give by a variable, those that it else has. */
export function written({ tag, attributes, children }: Shape): string {
  let text = `<${tag}`;
  for (const [name, given] of Object.entries(attributes)) {
    const rounded = typeof given === "number" ? Math.round(given * 100) / 100 : given;
    const value = attribute(rounded)?.replace(/^var\([^,]+, *([^)]+)\)$/, "$1");
    if (value !== undefined) text += ` ${name}="${escaped(value)}"`;
  }
  if (!children.length) return `${text}/>`;
  const inside = children.map((one) => (typeof one === "string" ? escaped(one) : written(one)));
  return `${text}>${inside.join("")}</${tag}>`;
}

const NAMED: Record<string, string> = { "<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;" };

function escaped(text: string): string {
  // what XML 1.0 has no way to say
  return text
    .replace(/[<>&"]/g, (one) => NAMED[one]!)
    .replace(/[^\t\n\r\u0020-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
}
