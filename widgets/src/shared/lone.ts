// A pane as a widget of its own.
import type { AnyModel, RenderProps } from "@anywidget/types";
import { unpack, type Packed } from "./buffers";
import { live } from "./ended";
import { descend } from "./lineage";
import type { Send } from "./pane";
import type { Selection } from "./selection";
import { follow, selectionOf, sendTo } from "./widget";
import type { Lineage } from "../models";

export interface Lone {
  view: Packed;
  lineage: Packed;
  selected: number[];
}

/** What a widget shows: its panes, and how a model is drawn in them. */
export interface Shown<Model> {
  readonly panes: readonly { dispose(): void }[];
  readonly draw: (model: Model) => void;
}

/** Draw a model's view, and know who came from whom, now and whenever they change. */
export function followed<Model>(
  model: AnyModel<Lone>,
  selection: Selection,
  draw: (view: Model) => void,
): (() => void)[] {
  return [
    follow(model, "lineage", (packed) => {
      const lineage = unpack<Lineage>(packed);
      if (lineage) descend(selection, lineage);
    }),
    follow(model, "view", (packed) => {
      const view = unpack<Model>(packed);
      if (view) draw(view);
    }),
  ];
}

/** What anywidget calls for a widget that shows one view-model. */
export function lone<Model>(
  make: (host: HTMLElement, selection: Selection, send: Send) => Shown<Model>,
): { render: (props: RenderProps<Lone>) => () => void } {
  function render({ model, el }: RenderProps<Lone>): () => void {
    const { selection, release } = selectionOf(model);
    const { panes, draw } = make(el, selection, sendTo(model));
    const leave = [release, ...followed(model, selection, draw)];
    return () => {
      leave.forEach((act) => act());
      panes.forEach((pane) => pane.dispose());
    };
  }
  return live(render);
}
