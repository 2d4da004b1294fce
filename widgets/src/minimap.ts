// The whole of a picture, small, with a frame around the part that is shown: click or drag to go there.
import type { Drawing } from "./drawing";
import { svg } from "./markup";
import type { Box, Viewport } from "./viewport";

export class Minimap {
  readonly root = svg("svg", { class: "trl-minimap", "aria-hidden": "true" });
  readonly #frame = svg("rect", { class: "trl-frame" });
  #viewport: Viewport | null = null;

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

  /** Frame another part; where everything is shown there is no map. */
  follow([x, y, width, height]: Box): void {
    const home = this.#viewport?.home;
    if (!home) return;
    const all = width >= home[2] * 0.98 && height >= home[3] * 0.98;
    this.root.classList.toggle("trl-off", all);
    for (const [name, value] of Object.entries({ x, y, width, height })) {
      this.#frame.setAttribute(name, String(value));
    }
  }
}
