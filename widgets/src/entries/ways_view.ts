// `WaysExplorer`: the ways of collecting alone.
import type { RenderProps } from "@anywidget/types";
import { live } from "../shared/ended";
import { unpack, type Packed } from "../shared/buffers";
import type { WaysView } from "../models";
import { Selection } from "../shared/selection";
import { WaysPane } from "../ways/ways";
import { follow, sendTo } from "../shared/widget";

interface Traits {
  view: Packed;
  busy: string;
  problem: string;
}

function render({ model, el }: RenderProps<Traits>): () => void {
  const pane = new WaysPane(el, new Selection(), sendTo(model));
  const told = () => pane.status({ busy: model.get("busy"), problem: model.get("problem") });
  const leave = [
    follow(model, "view", (packed) => {
      const view = unpack<WaysView>(packed);
      if (view) pane.draw(view);
    }),
    follow(model, "busy", told),
    follow(model, "problem", told),
  ];
  return () => {
    leave.forEach((act) => act());
    pane.dispose();
  };
}

export default live(render);
