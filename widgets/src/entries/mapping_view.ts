// `MappingExplorer`: assignments of replay manager and learner to devices.
import { MappingPane } from "../mapping/mapping";
import type { MappingView } from "../models";
import { unpack, type Packed } from "../shared/buffers";
import { Selection } from "../shared/selection";
import { follow, followView, sendTo, widget, write } from "../shared/widget";

interface Traits {
  view: Packed;
  at: number[];
  selected: string[];
}

export default widget<Traits>((model, el) => {
  const selection = new Selection();
  const pane = new MappingPane(el, selection, sendTo(model), (at) => write(model, { at }));
  const cells = () => unpack<MappingView>(model.get("view"))?.cells ?? [];
  return [
    followView<MappingView>(model, "view", (view) => pane.draw(view)),
    follow(model, "selected", ([manager, learner]) => {
      const cell = cells().findIndex((one) => one.manager === manager && one.learner === learner);
      selection.choose(cell < 0 ? [] : [cell]);
    }),
    selection.subscribe(() => {
      const [cell] = [...selection.ids].map((k) => cells()[k]!);
      const selected = cell ? [cell.manager, cell.learner] : [];
      if (String(selected) !== String(model.get("selected"))) write(model, { selected });
    }),
    () => pane.dispose(),
  ];
});
