// Small overview of a picture with a frame around the visible part: click or drag to navigate.
import type { Drawing } from "./drawing";
import { svg } from "../shared/markup";
import type { Box, Viewport } from "./viewport";

const GAP = 8; // pixels between the map and the edges, as in the style sheet
const LEAST = 100; // pixels of height below which the map would hide the graph
const CORNERS = [
  [true, true],
  [true, false],
  [false, true],
  [false, false],
] as const; // right or left, bottom or top; the first of equal ones wins

export class Minimap {
  readonly root = svg("svg", { class: "trl-minimap", "aria-hidden": "true" });
  readonly #frame = svg("rect", { class: "trl-frame" });
  #viewport: Viewport | null = null;
  #nodes: readonly Box[] = [];
  #asked = 0; // the frame in which the map is moved

  constructor() {
    const go = (event: PointerEvent) => {
      const point = new DOMPoint(event.clientX, event.clientY);
      const { x, y } = point.matrixTransform(this.root.getScreenCTM()!.inverse());
      this.#viewport?.centre(x, y);
    };
    this.root.addEventListener("pointerdown", (event) => {
      this.root.setPointerCapture(event.pointerId);
      go(event);
    });
    this.root.addEventListener("pointermove", (event) => event.buttons && go(event));
  }

  /** Draw the nodes and clusters of a drawing that is on the page. */
  draw(drawing: Drawing, viewport: Viewport): void {
    this.#viewport = viewport;
    this.#nodes = [...drawing.nodes.keys()].map((id) => drawing.box(id));
    const rect = (id: string, name: string) => {
      const [x, y, width, height] = drawing.box(id);
      return svg("rect", { class: name, x, y, width, height });
    };
    this.root.setAttribute("viewBox", viewport.home.join(" "));
    this.root.replaceChildren(
      ...[...drawing.clusters.keys()].map((id) => rect(id, "trl-mini-cluster")),
      ...[...drawing.nodes.keys()].map((id) => rect(id, "trl-mini-node")),
      this.#frame,
    );
    this.follow(viewport.box);
  }

  /** Frame another part; the map is hidden if everything is visible. */
  follow([x, y, width, height]: Box): void {
    const home = this.#viewport?.home;
    if (!home) return;
    const all = width >= home[2] * 0.98 && height >= home[3] * 0.98;
    this.root.classList.toggle("trl-off", all);
    for (const [name, value] of Object.entries({ x, y, width, height })) {
      this.#frame.setAttribute(name, String(value));
    }
    cancelAnimationFrame(this.#asked); // positions on the screen require a layout: once per frame
    if (!all) this.#asked = requestAnimationFrame(() => this.#settle());
  }

  /** Move to the corner that hides the fewest nodes; if every corner hides some, become transparent. */
  #settle(): void {
    const screen = this.#viewport?.svg.getScreenCTM();
    const stage = this.root.parentElement?.getBoundingClientRect();
    this.root.classList.toggle("trl-small", (stage?.height ?? 0) < LEAST);
    const map = this.root.getBoundingClientRect();
    if (!screen || !stage || !map.width) return;
    const [wide, high] = [map.width + GAP, map.height + GAP];
    const { a, d, e, f } = screen; // scaled and moved, never turned
    const counts = CORNERS.map(([isRight, isLow]) => {
      const left = isRight ? stage.right - wide : stage.left;
      const top = isLow ? stage.bottom - high : stage.top;
      return this.#nodes.filter(([x, y, width, height]) => {
        const [from, to] = [x * a + e, (x + width) * a + e];
        const [over, under] = [y * d + f, (y + height) * d + f];
        return from < left + wide && to > left && over < top + high && under > top;
      }).length;
    });
    const least = Math.min(...counts);
    const [isRight, isLow] = CORNERS[counts.indexOf(least)]!;
    this.root.classList.toggle("trl-at-left", !isRight);
    this.root.classList.toggle("trl-at-top", !isLow);
    this.root.classList.toggle("trl-over", least > 0);
  }
}
