// `MappingExplorer`: which primitive runs where.
import type { RenderProps } from "@anywidget/types";
import { live } from "../shared/ended";
import { unpack, type Packed } from "../shared/buffers";
import { MappingPane } from "../mapping/mapping";
import type { MappingView } from "../models";
import { Selection } from "../shared/selection";
import { follow, sendTo } from "../shared/widget";

interface Traits {
  view: Packed;
  at: number[];
  selected: string[];
}

function render({ model, el }: RenderProps<Traits>): () => void {
  const pane = new MappingPane(el, new Selection(), sendTo(model), {
    move: (at) => {
      model.set("at", [...at]);
      model.save_changes();
    },
    choose: (cell) => {
      model.set("selected", [...cell]);
      model.save_changes();
    },
  });
  const leave = [
    follow(model, "view", (packed) => {
      const view = unpack<MappingView>(packed);
      if (view) pane.draw(view);
    }),
    follow(model, "selected", (cell) => pane.choose(cell)),
  ];
  return () => {
    leave.forEach((act) => act());
    pane.dispose();
  };
}

export default live(render);
