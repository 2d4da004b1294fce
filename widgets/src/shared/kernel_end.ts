// End of a widget's kernel: the views show it, and accept no more input.
import type { AnyModel, RenderProps } from "@anywidget/types";
import { html } from "./markup";

/** The event that tells panes that their kernel has ended. */
export const ENDED = "trl-ended";

const TEXT = "The kernel of this view has ended or restarted. Run the cell again for a new one.";
const GONE = new Set(["restarting", "autorestarting", "terminating", "dead"]);
const DISCONNECTED = "jupyter-widgets-disconnected"; // ipywidgets' mark of a widget without a comm

type Slot = (sender: unknown, args: any) => void;

interface Signal {
  connect(slot: Slot): unknown;
  disconnect(slot: Slot): unknown;
}

/** The parts of JupyterLab's kernels and sessions that announce an end. */
interface Announcer {
  readonly statusChanged?: Signal;
  readonly kernelChanged?: Signal;
}

/** Wrap a widget's `render`: its views become inert when the kernel ends. */
export function endWithKernel<T extends Record<string, any>>(
  render: (props: RenderProps<T>) => () => void,
): { render: (props: RenderProps<T>) => () => void } {
  return {
    render(props) {
      const release = render(props);
      const leave = onEnd(props.model, props.el, () => disableInput(props.el));
      return () => {
        leave();
        release();
      };
    },
  };
}

/** Call `act` once when the kernel ends, or now if it has ended. Returns a function that stops listening. */
function onEnd(model: AnyModel<any>, host: HTMLElement, act: () => void): () => void {
  const release: (() => void)[] = [];
  const end = () => {
    if (!release.length) return;
    leave();
    act();
  };
  const leave = () => release.splice(0).forEach((one) => one());

  const isMarked = () => host.closest(`.${DISCONNECTED}`) !== null;
  const marks = new MutationObserver(() => isMarked() && end());
  marks.observe(host, { attributeFilter: ["class"] });
  release.push(() => marks.disconnect());

  const listen = (signal: Signal | undefined, slot: Slot) => {
    signal?.connect(slot);
    release.push(() => signal?.disconnect(slot));
  };
  const manager = model.widget_manager as unknown as {
    kernel?: Announcer | null;
    context?: { sessionContext?: Announcer };
  };
  const status: Slot = (_, now) => GONE.has(now) && end();
  listen(manager?.kernel?.statusChanged, status);
  const session = manager?.context?.sessionContext;
  listen(session?.statusChanged, status);
  listen(session?.kernelChanged, end);
  if (isMarked()) end();
  return leave;
}

/** Show above all panes of a widget that its kernel has ended, and disable input. */
function disableInput(host: HTMLElement): void {
  for (const child of host.children) if (child instanceof HTMLElement) child.inert = true;
  host.querySelectorAll(".trl-pane").forEach((pane) => pane.dispatchEvent(new Event(ENDED)));
  host.prepend(html("div", { class: "trl-ended", role: "status" }, TEXT));
}
