// The contract of a view: it draws a view-model in an element, marks what is selected, and says what
// the user did. A widget is one pane, the explorer several around one `Selection`.
import { ENDED } from "./ended";
import { OneStop } from "./keyboard";
import { html } from "./markup";
import type { Selection } from "./selection";
import theme from "./theme.css";

/** What a pane asks of Python, which checks it before it acts; `kind` says what it is. */
export interface Message {
  readonly kind: string;
  readonly [field: string]: unknown;
}

export type Send = (message: Message) => void;

/**
 * A view in `root`, which is the pane's own element.
 *
 * `draw` may be called again, with the model after a change; `select`, `instant` and `theme` are
 * called when the selection's ids, its instant, or the page's theme have changed. A pane changes the
 * selection itself (`this.selection.click(ids)`), and sends messages for what Python has to do.
 * Keys that are typed in it are its own: none is the notebook's.
 */
export abstract class Pane<Model> {
  readonly root: HTMLElement;
  readonly #style: HTMLStyleElement;
  readonly #release: (() => void)[] = [];

  /** `name` is the CSS class of the root (`trl-name`); `css` the pane's own style sheet. */
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
      selection.subscribe((change) => (change === "ids" ? this.select() : this.instant())),
    );
    this.root.addEventListener(ENDED, () => this.ended());
    const watch = new MutationObserver(() => this.theme());
    watch.observe(document.body, { attributeFilter: ["data-jp-theme-name", "class"] });
    this.#release.push(() => watch.disconnect());
  }

  /** Draw the model, instead of what was drawn before. */
  abstract draw(model: Model): void;

  /** Mark what `this.selection` says. */
  select(): void {}

  /** Show `this.selection.instant`. */
  instant(): void {}

  /** Read colours anew; style sheets with the theme's variables need nothing. */
  theme(): void {}

  /** Say that nothing is pending any more: the kernel has ended. */
  protected ended(): void {}

  /** Let go of what is selected; where something was opened or typed, of that first. */
  protected leave(): void {
    this.selection.choose([]);
  }

  /** Call `act` when the size of an element has changed, before it is next drawn. */
  protected onResize(element: Element, act: () => void): void {
    let asked = 0; // what is measured at once may change sizes again, which browsers complain of
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

  /** Leave the page, and everything that was listened to. */
  dispose(): void {
    for (const release of this.#release.splice(0)) release();
    this.#style.remove();
    this.root.remove();
  }
}

/** Whether the page asks for less motion. */
export function isCalm(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
