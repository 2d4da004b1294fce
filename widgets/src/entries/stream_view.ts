// `StreamView`: runs of a stream of kernels.
import type { RenderProps } from "@anywidget/types";
import { live } from "../shared/ended";
import { unpack, type Packed } from "../shared/buffers";
import type { StreamView } from "../models";
import { Selection } from "../shared/selection";
import { StreamPane } from "../streams/streams";
import { follow, sendTo } from "../shared/widget";

interface Traits {
  view: Packed;
  selected: number[];
  step: number;
}

function render({ model, el }: RenderProps<Traits>): () => void {
  const pane = new StreamPane(el, new Selection(), sendTo(model), ({ selected, step }) => {
    model.set("selected", [...selected]);
    model.set("step", step);
    model.save_changes();
  });
  const placed = () => pane.place({ selected: model.get("selected"), step: model.get("step") });
  const leave = [
    follow(model, "view", (packed) => {
      const view = unpack<StreamView>(packed);
      if (view) pane.draw(view);
    }),
    follow(model, "selected", placed),
    follow(model, "step", placed),
  ];
  return () => {
    leave.forEach((act) => act());
    pane.dispose();
  };
}

export default live(render);
