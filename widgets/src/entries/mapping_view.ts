// `MappingExplorer`: assignments of replay manager and learner to devices.
import { MappingPane } from "../mapping/mapping";
import type { MappingView } from "../models";
import type { Packed } from "../shared/buffers";
import { Selection } from "../shared/selection";
import { follow, followView, sendTo, widget, write } from "../shared/widget";

interface Traits {
  view: Packed;
  at: number[];
  selected: string[];
}

export default widget<Traits>((model, el) => {
  const pane = new MappingPane(el, new Selection(), sendTo(model), {
    move: (at) => write(model, { at: [...at] }),
    choose: (cell) => write(model, { selected: [...cell] }),
  });
  return [
    followView<MappingView>(model, "view", (view) => pane.draw(view)),
    follow(model, "selected", (cell) => pane.choose(cell)),
    () => pane.dispose(),
  ];
});
