// Panes of which one is shown at a time; their title bars have the buttons to change it.
import { button, html } from "../shared/markup";
import type { Panel } from "../shared/panel";

const STORED = "timerl-explorer-timed-pane";

/** Show one of several panes, by name; the browser stores which. */
export function alternate(panes: Readonly<Record<string, Panel<any>>>): void {
  const names = Object.keys(panes);
  const buttons = names.map(() => [] as HTMLButtonElement[]);
  const show = (name: string) => {
    names.forEach((one, k) => {
      panes[one]!.root.hidden = one !== name;
      for (const own of buttons[k]!) own.setAttribute("aria-pressed", String(one === name));
    });
  };
  for (const own of names) {
    const group = html("div", {
      class: "trl-alternate",
      role: "group",
      "aria-label": "shown pane",
    });
    names.forEach((name, k) => {
      const act = () => {
        show(name);
        panes[name]!.root.querySelector<HTMLElement>(`[data-pane="${name}"]`)!.focus();
        try {
          localStorage.setItem(STORED, name);
        } catch {
          // the page may not store anything
        }
      };
      const one = button(name, act, { class: "trl-quiet", "data-pane": name });
      buttons[k]!.push(one);
      group.append(one);
    });
    panes[own]!.addTools(group);
  }
  show(names.find((name) => name === stored()) ?? names[0]!);
}

function stored(): string | null {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}
