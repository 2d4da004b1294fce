// Keyboard handling of a pane: it keeps its keys, Tab enters and leaves it, arrows move inside it.

const STOPS = "button, input, select, summary, a[href], [tabindex]:not(.trl-pane)";
const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/**
 * Makes a pane one stop of the Tab key: the control used last, or the one with `data-first`. Elements inside
 * one with `data-roves` have a separate stop and separate arrows.
 */
export class OneStop {
  #at: HTMLElement | null = null;
  #had = false; // whether the focus is inside
  #asked = 0;
  readonly #watch = new MutationObserver(() => this.#later());

  /** `leave` is the action of Escape. */
  constructor(
    private readonly root: HTMLElement,
    private readonly leave: () => void,
  ) {
    // prevents the notebook's shortcuts, which are processed before any element receives a key
    root.dataset.lmSuppressShortcuts = "true";
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focusin", ({ target }) => this.#enter(target as HTMLElement));
    root.addEventListener("focusout", ({ target, relatedTarget }) => {
      // removing the focused element from the page must not move the focus out of the pane
      if (relatedTarget) this.#had = false;
      else queueMicrotask(() => (this.#had &&= !(target as Element).isConnected));
    });
    const attributeFilter = ["disabled", "hidden", "open", "data-first"];
    this.#watch.observe(root, { subtree: true, childList: true, attributeFilter });
  }

  dispose(): void {
    this.#watch.disconnect();
    cancelAnimationFrame(this.#asked);
  }

  #later(): void {
    this.#asked ||= requestAnimationFrame(() => this.#settle());
  }

  #settle(): void {
    this.#asked = 0;
    const stops = this.#stops();
    const fits = (one: HTMLElement) => one.getClientRects().length > 0 && !one.matches(":disabled");
    if (!this.#at || !stops.includes(this.#at) || !fits(this.#at)) {
      const shown = stops.filter(fits);
      this.#at = shown.find((one) => one.matches("[data-first]")) ?? shown[0] ?? null;
    }
    for (const one of stops) {
      const index = one === this.#at ? 0 : -1;
      if (one.getAttribute("tabindex") !== String(index)) one.tabIndex = index;
    }
    if (this.#had && document.activeElement === document.body) {
      (this.#at ?? this.root).focus({ preventScroll: true });
    }
  }

  #stops(): HTMLElement[] {
    const all = this.root.querySelectorAll<HTMLElement>(STOPS);
    return [...all].filter((one) => !one.closest("[data-roves]"));
  }

  #enter(target: HTMLElement): void {
    this.#had = true;
    if (target === this.#at || !target.matches(STOPS) || target.closest("[data-roves]")) return;
    this.#at = target;
    this.#later();
  }

  #key(event: KeyboardEvent): void {
    const { key, ctrlKey, metaKey, altKey } = event;
    event.stopPropagation();
    if (ctrlKey || metaKey || altKey) {
      // keys of the whole application, such as saving, still work here
      const again = new KeyboardEvent("keydown", event);
      if (!document.body.dispatchEvent(again)) event.preventDefault();
      return;
    }
    if (key === "Escape") this.leave();
    const target = event.target as HTMLElement;
    const by = STEPS[key];
    if (!by || target.closest("[data-roves]") || keeps(target, key)) return;
    const shown = this.#stops().filter((one) => one.getClientRects().length > 0);
    const usable = shown.filter((one) => !one.matches(":disabled"));
    const next = usable[usable.indexOf(target) + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
    if (next instanceof HTMLInputElement && !next.matches("[type=range]")) next.select();
  }
}

/** Whether an element handles an arrow key itself. */
function keeps(element: HTMLElement, key: string): boolean {
  const isUpright = key === "ArrowUp" || key === "ArrowDown";
  if (element instanceof HTMLSelectElement) return isUpright;
  if (!(element instanceof HTMLInputElement)) return false;
  const { type, value, defaultValue } = element;
  if (type === "number") return isUpright || value !== defaultValue; // being typed
  return !isUpright && type !== "checkbox";
}

/** Whether a click or key adds to the selection instead of replacing it. */
export function isAdding({ shiftKey, ctrlKey, metaKey }: MouseEvent | KeyboardEvent): boolean {
  return shiftKey || ctrlKey || metaKey;
}

/** The keys that an element handles. */
export function keys(
  element: Element,
  acts: (event: KeyboardEvent) => Record<string, (() => void) | undefined>,
): void {
  element.addEventListener("keydown", (event) => {
    const pressed = event as KeyboardEvent;
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey) return;
    const act = acts(pressed)[pressed.key];
    if (!act) return;
    pressed.preventDefault();
    pressed.stopPropagation();
    act();
  });
}

/** The arrow keys of a list: `go` to the item before or after the current one, whose position is -1 for none. */
export function listKeys(list: Element, current: () => number, go: (item: number) => void): void {
  const step = (by: number) => {
    const next = Math.max(current() + by, 0);
    if (next < list.childElementCount) go(next);
  };
  keys(list, () => ({ ArrowDown: () => step(1), ArrowUp: () => step(-1) }));
}
