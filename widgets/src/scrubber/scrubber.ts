// Time slider: sets the instant of all views, by slider, by step, or by playing.
import { formatCount } from "../shared/plot";
import { explain } from "../shared/terms";
import { button, html } from "../shared/markup";
import { Pane, type Send } from "../shared/pane";
import css from "./scrubber.css";
import type { Selection } from "../shared/selection";
import type { Instants } from "../shared/instants";

const FRAME = 80; // milliseconds between frames
const WHOLE = 150; // minimal number of frames for a turn

export class Scrubber extends Pane<Instants | null> {
  #instants: Instants | null = null;
  #playing: ReturnType<typeof setInterval> | null = null;
  #slider = html("input", {
    type: "range",
    min: 0,
    value: 0,
    "aria-label": "instant",
    "data-first": true,
  });
  #text = html("output", { class: "trl-at", "aria-live": "off" });
  #play = button("▶", () => (this.#playing ? this.#pause() : this.#start()), { label: "play" });

  constructor(host: HTMLElement, selection: Selection, send: Send) {
    super(host, selection, send, "scrubber", css);
    this.#slider.addEventListener("input", () => this.#go(this.#slider.valueAsNumber));
    this.root.append(
      this.#play,
      button("‹", () => this.#go(this.selection.instant ?? 0, -1), { label: "previous instant" }),
      button("›", () => this.#go(this.selection.instant ?? -1, 1), { label: "next instant" }),
      this.#slider,
      this.#text,
      button("×", () => (this.#pause(), this.selection.at(null)), { label: "clear the instant" }),
    );
    this.#text.title = explain("instant")!;
    this.onDispose(() => this.#pause());
  }

  override draw(instants: Instants | null): void {
    if (instants?.count !== this.#instants?.count) this.selection.zoom(null);
    this.#instants = instants;
    this.#slider.max = String(Math.max((instants?.count ?? 1) - 1, 0));
    const at = this.selection.instant;
    if (instants && at !== null) this.selection.at(instants.count ? instants.near(at) : null);
    this.instant();
  }

  override instant(): void {
    const at = this.selection.instant;
    const count = this.#instants?.count ?? 0;
    this.#slider.valueAsNumber = at ?? 0;
    const what = at === null ? "no instant" : (this.#instants?.text(at) ?? "");
    this.#text.textContent =
      at === null ? formatCount(count, "instant") : `${at} / ${count - 1}  ${what}`;
    this.#slider.setAttribute("aria-valuetext", what);
  }

  #go(at: number, by = 0): void {
    this.#pause();
    if (this.#instants?.count) this.selection.at(this.#instants.near(at, by));
  }

  #start(): void {
    const count = this.#instants?.count ?? 0;
    if (!count) return;
    if ((this.selection.instant ?? count) >= count - 1) this.selection.at(0);
    const by = Math.max(1, Math.round(count / WHOLE));
    this.#playing = setInterval(() => {
      const next = (this.selection.instant ?? 0) + by;
      this.selection.at(this.#instants!.near(Math.min(next, count - 1)));
      if (next >= count - 1) this.#pause();
    }, FRAME);
    this.#label("❚❚", "pause playing");
  }

  #pause(): void {
    if (this.#playing !== null) clearInterval(this.#playing);
    this.#playing = null;
    this.#label("▶", "play");
  }

  #label(text: string, label: string): void {
    this.#play.textContent = text;
    this.#play.title = label;
    this.#play.setAttribute("aria-label", label);
  }
}
