// `WaysExplorer`: the ways of collecting alone.
import type { RenderProps } from "@anywidget/types";
import { live } from "../ended";
import { unpack, type Packed } from "../buffers";
import type { WaysView } from "../models";
import { Selection } from "../selection";
import { WaysPane } from "../ways";
import { follow, sendTo } from "../widget";

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
