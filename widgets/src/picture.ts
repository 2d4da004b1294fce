// Pictures to take away: a drawing as a file of its own, with the colours that the page gives it.
import { html, svg } from "./markup";

const INLINED = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "display",
] as const;

/** A copy that needs no style sheet, on the background that it has in the page. */
export function standalone(drawing: SVGSVGElement): SVGSVGElement {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, k) => {
    const style = getComputedStyle(originals[k]!);
    for (const name of INLINED) {
      const value = style.getPropertyValue(name);
      if (value) element.setAttribute(name, value);
    }
    element.removeAttribute("class");
    element.removeAttribute("style");
  });
  const { width, height } = drawing.getBoundingClientRect();
  const box = drawing.getAttribute("viewBox") ?? `0 0 ${width} ${height}`;
  const [x, y, w, h] = box.split(/[\s,]+/);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", box);
  copy.setAttribute("width", String(Math.ceil(width)));
  copy.setAttribute("height", String(Math.ceil(height)));
  copy.prepend(svg("rect", { x, y, width: w, height: h, fill: paperOf(drawing) }));
  return copy;
}

function paperOf(element: Element): string {
  for (let at: Element | null = element; at; at = at.parentElement) {
    const paper = getComputedStyle(at).backgroundColor;
    if (paper && paper !== "transparent" && !/, 0\)$/.test(paper)) return paper;
  }
  return "#ffffff";
}

/** A text picture: lines of coloured spans, such as a loop nest. */
export function textPicture(
  host: Element,
  lines: readonly (readonly { text: string; fill: string; bold?: boolean }[])[],
): SVGSVGElement {
  const glyph = 7.25;
  const length = (line: readonly { text: string }[]) => line.reduce((n, s) => n + s.text.length, 0);
  const width = 24 + glyph * Math.max(10, ...lines.map(length));
  const height = 16 + 17 * lines.length;
  const root = svg("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
  });
  root.append(svg("rect", { width, height, fill: paperOf(host) }));
  lines.forEach((line, k) => {
    const row = svg("text", {
      x: 12,
      y: 22 + 17 * k,
      "font-family": "ui-monospace, Menlo, Consolas, monospace",
      "font-size": 12,
      "xml:space": "preserve",
      style: "white-space: pre",
    });
    for (const { text, fill, bold } of line) {
      row.append(svg("tspan", { fill, "font-weight": bold ? 600 : undefined }, text));
    }
    root.append(row);
  });
  return root;
}

/** A picture with a line of text above it. */
export interface Titled {
  readonly title: string;
  readonly picture: SVGSVGElement;
}

/** Rows of pictures as one, each as large as it is. */
export function arranged(host: Element, rows: readonly (readonly Titled[])[]): SVGSVGElement {
  const [gap, head, fill] = [12, 22, getComputedStyle(host).color];
  const root = svg("svg", { xmlns: "http://www.w3.org/2000/svg" });
  const paper = svg("rect", { fill: paperOf(host) });
  root.append(paper);
  let [wide, y] = [0, gap];
  for (const row of rows) {
    let [x, high] = [gap, 0];
    for (const { title, picture } of row) {
      const [width, height] = ["width", "height"].map((name) => Number(picture.getAttribute(name)));
      if (title) {
        const look = { x, y: y + 14, fill, "font-family": "sans-serif", "font-size": 12 };
        root.append(svg("text", look, title));
      }
      picture.setAttribute("x", String(x));
      picture.setAttribute("y", String(y + (title ? head : 0)));
      root.append(picture);
      x += width! + gap;
      high = Math.max(high, height! + (title ? head : 0));
    }
    wide = Math.max(wide, x);
    y += high + gap;
  }
  const [width, height] = [Math.ceil(wide), Math.ceil(y)].map(String) as [string, string];
  for (const element of [root, paper]) {
    element.setAttribute("width", width);
    element.setAttribute("height", height);
  }
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return root;
}

/** Buttons that save a picture, as SVG and as PNG; `take` gives it, or null while there is none. */
export function pictureButtons(name: string, take: () => SVGSVGElement | null): HTMLElement[] {
  const writers = { SVG: saveSvg, PNG: savePng };
  return Object.entries(writers).map(([format, write]) => {
    const label = `save ${name} as ${format}`;
    const look = { class: "trl-quiet", title: label, "aria-label": label };
    const button = html("button", look, format);
    button.addEventListener("click", () => {
      const taken = take();
      if (taken) void write(taken, name);
    });
    return button;
  });
}

/** Let the reader save a picture as SVG. */
export function saveSvg(picture: SVGSVGElement, name: string): void {
  save(new Blob([serialise(picture)], { type: "image/svg+xml" }), `${name}.svg`);
}

/** Let the reader save a picture as PNG, with two pixels for one. */
export async function savePng(picture: SVGSVGElement, name: string): Promise<void> {
  const url = URL.createObjectURL(new Blob([serialise(picture)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * Number(picture.getAttribute("width"));
    canvas.height = 2 * Number(picture.getAttribute("height"));
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
    if (blob) save(blob, `${name}.png`);
  } finally {
    URL.revokeObjectURL(url);
  }
}

function serialise(picture: SVGSVGElement): string {
  return new XMLSerializer().serializeToString(picture);
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
