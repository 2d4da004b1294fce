// Connection between an anywidget model and the panes of a widget.
import type { AnyModel, RenderProps } from "@anywidget/types";
import { unpack, type Packed } from "./buffers";
import { endWithKernel } from "./kernel_end";
import type { Send } from "./pane";
import { Selection } from "./selection";

/** The traits of a model, by name. */
type ObjectHash = Record<string, any>;

/** The common trait of all widgets: the selected operations, synchronised in both directions. */
export interface Selectable {
  selected: number[];
}

/** A `Selection` synchronised with the model's `selected`, until `release`. */
export function selectionOf<T extends Selectable>(
  model: AnyModel<T>,
): { selection: Selection; release: () => void } {
  const selection = new Selection();
  const pull = () => {
    const ids = model.get("selected");
    if (String([...selection.ids]) !== String(ids)) selection.choose(ids);
  };
  pull();
  const leave = selection.subscribe((change) => {
    const ids = [...selection.ids];
    if (change !== "ids" || String(ids) === String(model.get("selected"))) return;
    model.set("selected", ids as T["selected"]);
    model.save_changes();
  });
  model.on("change:selected", pull);
  return {
    selection,
    release: () => {
      leave();
      model.off("change:selected", pull);
    },
  };
}

/** Return the function that sends messages of this model to Python. */
export function sendTo<T extends ObjectHash>(model: AnyModel<T>): Send {
  return (message) => model.send(message);
}

/** Call `act` when Python refuses requests of a kind, until the returned function is called. */
export function onRefused<T extends ObjectHash>(
  model: AnyModel<T>,
  request: string,
  act: () => void,
): () => void {
  const told = (message: unknown) => {
    const { kind, request: of } = (message ?? {}) as Record<string, unknown>;
    if (kind === "refused" && of === request) act();
  };
  model.on("msg:custom", told);
  return () => model.off("msg:custom", told);
}

/** Call `act` now and after every change of a trait, until the returned function is called. */
export function follow<T extends ObjectHash, K extends keyof T & string>(
  model: AnyModel<T>,
  trait: K,
  act: (value: T[K]) => void,
): () => void {
  const run = () => act(model.get(trait));
  run();
  model.on(`change:${trait}`, run);
  return () => model.off(`change:${trait}`, run);
}

/** Call `act` with the view of a trait, like `follow`, but not while the trait is empty. */
export function followView<View>(
  model: AnyModel<any>,
  trait: string,
  act: (view: View) => void,
): () => void {
  return follow(model, trait, (packed: Packed) => {
    const view = unpack<View>(packed);
    if (view) act(view);
  });
}

/** Set traits of a model, and send them to Python. */
export function write<T extends ObjectHash>(model: AnyModel<T>, traits: Partial<T>): void {
  for (const [name, value] of Object.entries(traits)) model.set(name, value);
  model.save_changes();
}

/** The functions that anywidget calls; `make` returns cleanup functions, called in this order. */
export function widget<T extends ObjectHash>(
  make: (model: AnyModel<T>, el: HTMLElement) => (() => void)[],
): { render: (props: RenderProps<T>) => () => void } {
  return endWithKernel<T>(({ model, el }) => {
    const leave = make(model, el);
    return () => leave.forEach((act) => act());
  });
}
