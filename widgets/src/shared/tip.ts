// Tooltip of a plot, beside the pointer and inside its pane.
import { html } from "./markup";

export class Tip {
  readonly root = html("div", { class: "trl-tip", hidden: true });

  /** `body` is the scrolled element of the pane that contains the tooltip. */
  constructor(private readonly body: HTMLElement) {
    body.append(this.root);
  }

  /** Show a text beside a position on the screen, or nothing. */
  show(text: string, event: { readonly clientX: number; readonly clientY: number }): void {
    this.root.hidden = !text;
    if (!text) return;
    this.root.textContent = text;
    const area = this.body.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    const isRight = x > 0.6 * area.width;
    this.root.style.left = isRight ? "" : `${x + 14}px`;
    this.root.style.right = isRight ? `${this.body.clientWidth - x + 14}px` : "";
    // above the pointer if there is no room below it
    const { offsetHeight } = this.root;
    const below = y + 14 + offsetHeight <= this.body.clientHeight || y < offsetHeight + 8;
    this.root.style.top = `${this.body.scrollTop + (below ? y + 14 : y - offsetHeight - 8)}px`;
  }

  /** Show a text above an element of the pane. */
  showAbove(element: Element, text: string): void {
    this.root.textContent = text;
    this.root.hidden = false;
    const [at, body] = [element, this.body].map((one) => one.getBoundingClientRect().top);
    const top = at! - body! + this.body.scrollTop - this.root.offsetHeight - 2;
    Object.assign(this.root.style, { left: "90px", right: "", top: `${Math.max(top, 0)}px` });
  }

  hide(): void {
    this.root.hidden = true;
  }
}
