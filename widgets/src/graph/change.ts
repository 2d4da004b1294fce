// Animation of a graph's change: unchanged nodes move to their new positions, added ones are green with a
// plus, changed ones amber with a tilde, removed ones red and dashed with a minus until they fade.
import { prefix, type Drawing } from "./drawing";
import type { Difference } from "./graph_model";
import { isCalm } from "../shared/pane";

const MOVE = 450; // milliseconds
const FADE = 1600;
const MANY = 400; // number of nodes above which they are not animated
const GHOSTS = 150; // maximal number of removed nodes shown

/** Mark a drawing with its differences from the previous one. */
export function mark(drawing: Drawing, { added, changed, edges }: Difference): void {
  for (const { id } of edges) drawing.edges.get(id)?.classList.add("trl-changed");
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

/** Remove the marks. */
export function unmark(drawing: Drawing): void {
  drawing.svg.querySelectorAll(".trl-sign, .trl-removed").forEach((element) => element.remove());
  for (const element of [...drawing.nodes.values(), ...drawing.edges.values()]) {
    element.classList.remove("trl-added", "trl-changed");
  }
}

/** Mapping from positions in the previous picture to those in this one at the same position of the screen. */
export interface Carry {
  (place: readonly [number, number]): [number, number];
  readonly scale: number;
}

/** Show removed items for a while at their previous positions. */
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
 * Move items from their previous positions; `places` are the centres in the previous picture, for a new node
 * those of its origins.
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
