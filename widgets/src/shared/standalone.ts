// A pane as a separate widget.
import type { AnyModel } from "@anywidget/types";
import type { Packed } from "./buffers";
import { descend } from "./lineage";
import type { Send } from "./pane";
import type { Selection } from "./selection";
import { followView, selectionOf, sendTo, widget } from "./widget";
import type { Lineage } from "../models";

export interface StandaloneModel {
  view: Packed;
  lineage: Packed;
  selected: number[];
}

/** The content of a widget: its panes, and a function that draws a model in them. */
export interface WidgetContent<Model> {
  readonly panes: readonly { dispose(): void }[];
  readonly draw: (model: Model) => void;
}

/** Draw a model's view and its lineage, now and after every change. */
export function followViews<Model>(
  model: AnyModel<any>,
  selection: Selection,
  draw: (view: Model) => void,
): (() => void)[] {
  return [
    followView<Lineage>(model, "lineage", (lineage) => descend(selection, lineage)),
    followView<Model>(model, "view", draw),
  ];
}

/** The render function of a widget that shows one view-model. */
export function createStandaloneWidget<Model>(
  make: (host: HTMLElement, selection: Selection, send: Send) => WidgetContent<Model>,
) {
  return widget<StandaloneModel>((model, el) => {
    const { selection, release } = selectionOf(model);
    const { panes, draw } = make(el, selection, sendTo(model));
    const ends = panes.map((pane) => () => pane.dispose());
    return [release, ...followViews(model, selection, draw), ...ends];
  });
}
