// Shows how a graph became another: what stays moves to its new place, what came is green with a plus,
// what changed amber with a tilde, what went red and dashed with a minus, until it fades.
import { prefix, type Drawing } from "./drawing";
import type { Difference } from "./graph_model";
import { isCalm } from "../shared/pane";

const MOVE = 450; // milliseconds
const FADE = 1600;
const MANY = 400; // nodes that are not moved one by one
const GHOSTS = 150; // nodes that are shown once more, at most

/** Mark a drawing with what differs from the one before. */
export function mark(drawing: Drawing, { added, changed }: Difference): void {
  for (const [nodes, name, sign] of [
    [added, "trl-added", "+ "],
    [changed, "trl-changed", "~ "],
  ] as const) {
    for (const { id } of nodes) {
      const element = drawing.nodes.get(id);
      if (!element) continue;
      element.classList.add(name);
      prefix(element, "trl-sign", sign);
    }
  }
}

/** Take the marks away. */
export function unmark(drawing: Drawing): void {
  drawing.svg.querySelectorAll(".trl-sign, .trl-removed").forEach((element) => element.remove());
  for (const element of drawing.nodes.values()) {
    element.classList.remove("trl-added", "trl-changed");
  }
}

/** From places in the picture before to those in this one that are at the same spot of the screen. */
export interface Carry {
  (place: readonly [number, number]): [number, number];
  readonly scale: number;
}

/** Show for a while what is no longer there, where it was. */
export function showRemoved(
  before: Drawing,
  after: Drawing,
  { removed }: Difference,
  carry: Carry,
): void {
  const [x, y] = carry(before.origin);
  const [dx, dy] = [x - after.origin[0], y - after.origin[1]];
  for (const { id } of removed.slice(0, GHOSTS)) {
    const element = before.nodes.get(id)?.cloneNode(true) as SVGGElement | undefined;
    if (!element) continue;
    for (const name of ["id", "tabindex", "role", "aria-label", "aria-pressed"]) {
      element.removeAttribute(name);
    }
    element.setAttribute("class", "trl-removed");
    element.setAttribute("aria-hidden", "true");
    element.setAttribute("transform", `translate(${dx} ${dy}) scale(${carry.scale})`);
    prefix(element, "trl-sign", "− ");
    after.add(element);
    if (isCalm()) setTimeout(() => element.remove(), FADE);
    else {
      const fading = element.animate([{ opacity: 0.9 }, { opacity: 0 }], FADE);
      fading.onfinish = () => element.remove();
    }
  }
}

/**
 * Move what stays from where it was; `places` are the middles in the
 * picture before, of a new node those of what it came from.
 */
export function move(
  drawing: Drawing,
  places: ReadonlyMap<string, [number, number]>,
  carry: Carry,
): void {
  if (isCalm() || drawing.nodes.size > MANY || !drawing.isShown) return;
  const timing = { duration: MOVE, easing: "ease-in-out" };
  for (const [id, element] of [...drawing.nodes, ...drawing.clusters]) {
    const was = places.get(id);
    if (!was) {
      element.animate([{ opacity: 0 }, { opacity: 1 }], timing);
      continue;
    }
    const [x, y] = drawing.middle(id);
    const [fromX, fromY] = carry(was);
    const start = `translate(${fromX - x}px, ${fromY - y}px)`;
    element.animate([{ transform: start }, { transform: "none" }], timing);
  }
  const late = [{ opacity: 0 }, { opacity: 0, offset: 0.5 }, { opacity: 1 }];
  for (const element of drawing.edges.values()) element.animate(late, timing);
}
