// Base class of views: a pane draws a view-model in an element, marks the selection, and reports user actions.
// A widget is one pane; the explorer has several with a common `Selection`.
import { ENDED } from "./kernel_end";
import { OneStop } from "./keyboard";
import { html } from "./markup";
import type { Selection } from "./selection";
import theme from "./theme.css";

/** A request to Python, which validates it; `kind` is its type. */
export interface Message {
  readonly kind: string;
  readonly [field: string]: unknown;
}

export type Send = (message: Message) => void;

/**
 * A view in `root`, the pane's own element. `draw` may be called again, with the changed model; `select`,
 * `instant`, `range` and `theme` are called after changes of the selected ids, the instant, the visible range of
 * the time axes, or the page's theme. A pane changes the selection itself (`this.selection.click(ids)`), and sends messages for actions of Python.
 * The notebook does not receive keys typed in it.
 */
export abstract class Pane<Model> {
  readonly root: HTMLElement;
  readonly #style: HTMLStyleElement;
  readonly #release: (() => void)[] = [];

  /** `name` is the CSS class of the root (`trl-name`); `css` is the pane's style sheet. */
  constructor(
    host: HTMLElement,
    readonly selection: Selection,
    protected readonly send: Send,
    name: string,
    css = "",
  ) {
    this.#style = html("style", {}, theme + css);
    this.root = html("div", { class: `trl-pane trl-${name}`, tabindex: -1 });
    host.append(this.#style, this.root);
    if (!host.closest(".trl-pane")) {
      const stop = new OneStop(this.root, () => this.leave());
      this.#release.push(() => stop.dispose());
    }
    this.#release.push(
      selection.subscribe((change) => {
        if (change === "ids") this.select();
        else if (change === "instant") this.instant();
        else this.range();
      }),
    );
    this.root.addEventListener(ENDED, () => this.onKernelEnd());
    const watch = new MutationObserver(() => this.theme());
    watch.observe(document.body, { attributeFilter: ["data-jp-theme-name", "class"] });
    this.#release.push(() => watch.disconnect());
  }

  /** Draw a model in place of the previous one. */
  abstract draw(model: Model): void;

  /** Mark the items of `this.selection`. */
  select(): void {}

  /** Show `this.selection.instant`. */
  instant(): void {}

  /** Show `this.selection.range`. */
  range(): void {}

  /** Read colours again; style sheets with the theme's variables follow by themselves. */
  theme(): void {}

  /** Show that nothing is pending any more: the kernel has ended. */
  protected onKernelEnd(): void {}

  /** End the selection; an open or typed item ends first. */
  protected leave(): void {
    this.selection.choose([]);
  }

  /** Call `act` when the size of an element has changed, before it is next drawn. */
  onResize(element: Element, act: () => void): void {
    let asked = 0; // deferred: an immediate measurement may change sizes again, which browsers report as an error
    const watch = new ResizeObserver(() => {
      cancelAnimationFrame(asked);
      asked = requestAnimationFrame(act);
    });
    watch.observe(element);
    this.onDispose(() => {
      watch.disconnect();
      cancelAnimationFrame(asked);
    });
  }

  /** Call `release` when the pane is disposed of. */
  protected onDispose(release: () => void): void {
    this.#release.push(release);
  }

  /** Leave the page, and stop listening. */
  dispose(): void {
    for (const release of this.#release.splice(0)) release();
    this.#style.remove();
    this.root.remove();
  }
}

/** Whether the page asks for reduced motion. */
export function isCalm(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
