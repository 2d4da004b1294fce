// The visible part of a picture: drag to move, Ctrl and wheel to zoom.

export type Box = readonly [x: number, y: number, width: number, height: number];

const CLICK = 4; // maximal movement of a click in pixels
const LARGEST = 1.3; // maximal pixels per unit of a fitted picture
const SMALLEST = 1.1; // minimal pixels per unit for readable text of ten units

export class Viewport {
  readonly home: Box;
  /** Repeats the last `fit` or `start` for another size of the viewport. */
  #again: () => void = () => this.fit();
  #box: Box;
  #fitted: Box;
  #from: { x: number; y: number; box: Box } | null = null;
  #dragged = false;

  /**
   * Create a viewport of an `<svg>` element with a view box; `changed` is called when the visible part
   * changes.
   */
  constructor(
    readonly svg: SVGSVGElement,
    private readonly changed: (box: Box) => void = () => {},
  ) {
    const { x, y, width, height } = svg.viewBox.baseVal;
    this.home = this.#fitted = this.#box = [x, y, width, height];
    svg.setAttribute("viewBox", this.home.join(" "));
    svg.addEventListener("pointerdown", (event) => this.#grab(event));
    svg.addEventListener("pointermove", (event) => this.#drag(event));
    svg.addEventListener("pointerup", () => (this.#from = null));
    svg.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  get box(): Box {
    return this.#box;
  }

  /** Whether the pointer has moved since it was pressed, so that the release is not a click. */
  get dragged(): boolean {
    return this.#dragged;
  }

  show(box: Box): void {
    this.#box = box;
    this.svg.setAttribute("viewBox", box.join(" "));
    this.changed(box);
  }

  /** Whether the visible part is still the result of `fit` or `start`. */
  get isHome(): boolean {
    return this.#box === this.#fitted;
  }

  /** Show everything, slightly enlarged at most. */
  fit(): void {
    this.frame(this.home, 0);
    this.#fitted = this.#box;
    this.#again = () => this.fit();
  }

  /** Show everything, or the part around a point that fits at a readable size. */
  start(from: () => readonly [number, number]): void {
    this.#again = () => this.start(from);
    const { width: across, height: down } = this.svg.getBoundingClientRect();
    const [x, y, width, height] = this.home;
    if (!across) return; // not laid out yet
    if (Math.min(across / width, down / height) < SMALLEST) {
      const at = from();
      const [w, h] = [across / SMALLEST, down / SMALLEST];
      this.show([within(at[0] - w / 2, w, x, width), within(at[1] - h / 2, h, y, height), w, h]);
      this.#fitted = this.#box;
    } else {
      this.fit();
      this.#again = () => this.start(from);
    }
  }

  /** Repeat the last `fit` or `start`. */
  refit(): void {
    this.#again();
  }

  /** Show a part with some room around it. */
  frame([x, y, width, height]: Box, room = 20): void {
    const { width: across, height: down } = this.svg.getBoundingClientRect();
    const w = Math.max(width + 2 * room, across / LARGEST);
    const h = Math.max(height + 2 * room, down / LARGEST);
    this.show([x + width / 2 - w / 2, y + height / 2 - h / 2, w, h]);
  }

  /** Scale by `factor` (below one: closer) around a point, or the centre. */
  zoom(factor: number, at?: readonly [number, number]): void {
    const [x, y, w, h] = this.#box;
    const [cx, cy] = at ?? [x + w / 2, y + h / 2];
    this.show([cx - (cx - x) * factor, cy - (cy - y) * factor, w * factor, h * factor]);
  }

  /** Move a point to the centre. */
  centre(cx: number, cy: number): void {
    const [, , w, h] = this.#box;
    this.show([cx - w / 2, cy - h / 2, w, h]);
  }

  /** Move as little as necessary to show a whole box. */
  reveal([bx, by, bw, bh]: Box): void {
    const [x, y, w, h] = this.#box;
    const near = (low: number, size: number, start: number, room: number) =>
      low < start ? low : low + size > start + room ? low + size - room : start;
    const next: Box = [near(bx, bw, x, w), near(by, bh, y, h), w, h];
    if (next[0] !== x || next[1] !== y) this.show(next);
  }

  /** The picture's units per pixel; the picture keeps its proportions. */
  get scale(): number {
    const { width, height } = this.svg.getBoundingClientRect();
    return Math.max(this.#box[2] / (width || 1), this.#box[3] / (height || 1));
  }

  #grab(event: PointerEvent): void {
    this.#from = { x: event.clientX, y: event.clientY, box: this.#box };
    this.#dragged = false;
  }

  #drag(event: PointerEvent): void {
    if (!this.#from || !event.buttons) return;
    const [dx, dy] = [event.clientX - this.#from.x, event.clientY - this.#from.y];
    this.#dragged ||= Math.hypot(dx, dy) > CLICK;
    if (!this.#dragged) return;
    const [x, y, w, h] = this.#from.box;
    this.show([x - dx * this.scale, y - dy * this.scale, w, h]);
  }

  #wheel(event: WheelEvent): void {
    if (!event.ctrlKey && !event.metaKey) return; // a wheel without modifier scrolls the page
    event.preventDefault();
    const point = new DOMPoint(event.clientX, event.clientY);
    const { x, y } = point.matrixTransform(this.svg.getScreenCTM()!.inverse());
    this.zoom(Math.exp(event.deltaY / 500), [x, y]);
  }
}

/** The start of a part of this size, as near to `low` as possible without leaving the range. */
function within(low: number, size: number, start: number, room: number): number {
  if (size >= room) return start + (room - size) / 2;
  return Math.min(Math.max(low, start), start + room - size);
}
