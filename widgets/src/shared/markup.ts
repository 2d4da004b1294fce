// Elements from plain values, and pictures from Python. Values of a program, such as names, are text: nothing
// here parses HTML, and SVG is stripped of everything that could run or load.

import { attribute, type Attributes, type Shape } from "../draw/shapes";

export type { Attributes };

const FORBIDDEN =
  "script, style, foreignObject, iframe, object, embed, use, image, animate, animateMotion, " +
  "animateTransform, set";
const SVG = "http://www.w3.org/2000/svg";

export type Child = Node | string;

/** An HTML element; strings among the children become text. `undefined` and `false` omit an attribute. */
export function html<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fillElement(document.createElement(tag), attributes, children);
}

/** An SVG element; see `html`. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fillElement(document.createElementNS(SVG, tag), attributes, children);
}

function fillElement<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, given] of Object.entries(attributes)) {
    const value = attribute(given);
    if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A button; `label` is both its tooltip and its name, for a button with a sign instead of a word. */
export function button(
  content: string,
  act: (event: MouseEvent) => void,
  { label, ...attributes }: Attributes = {},
): HTMLButtonElement {
  const names = label === undefined ? {} : { title: label, "aria-label": label };
  const found = html("button", { ...names, ...attributes }, content);
  found.addEventListener("click", act);
  return found;
}

/** The key of a colour, before a name. */
export function colourKey(fill: string): SVGElement {
  return svg(
    "svg",
    { class: "trl-keys", viewBox: "0 0 12 12", "aria-hidden": "true" },
    svg("rect", { x: 1, y: 1, width: 10, height: 10, fill }),
  );
}

/** A drawing as an element. */
export function createElement({ tag, attributes, children }: Shape): SVGElement {
  return svg(
    tag,
    attributes,
    ...children.map((one) => (typeof one === "string" ? one : createElement(one))),
  );
}

/** The `<svg>` element of a picture from Python; throws if the text is not SVG. */
export function picture(text: string): SVGSVGElement {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (!(root instanceof SVGSVGElement)) throw new Error("a picture that is not SVG");
  root.querySelectorAll(FORBIDDEN).forEach((element) => element.remove());
  root.querySelectorAll("a").forEach((link) => link.replaceWith(...link.childNodes));
  for (const element of [root, ...root.querySelectorAll("*")]) {
    for (const { name, value } of [...element.attributes]) {
      const runs = /^on/i.test(name) || /javascript:/i.test(value);
      const loads = /href$/i.test(name) || /url\s*\(\s*(?!["']?#)/i.test(value);
      if (runs || loads) element.removeAttribute(name);
    }
  }
  return document.importNode(root, true);
}

/** A table below a row of heads; a text becomes the head of its column. */
export function table(
  heads: readonly (string | HTMLElement)[],
  body: HTMLElement,
  attributes: Attributes = {},
  ...before: HTMLElement[]
): HTMLTableElement {
  const cells = heads.map((one) =>
    typeof one === "string" ? html("th", { scope: "col" }, one) : one,
  );
  const name = `trl-table ${attributes.class ?? ""}`.trim();
  const head = cells.length ? [html("thead", {}, html("tr", {}, ...cells))] : [];
  return html("table", { ...attributes, class: name }, ...before, ...head, body);
}

/** A row of a table: its head, and the texts or elements of its cells. */
export function row(attributes: Attributes, head: Child, ...cells: Child[]): HTMLTableRowElement {
  const rest = cells.map((cell) => html("td", {}, cell));
  return html("tr", attributes, html("th", { scope: "row" }, head), ...rest);
}
