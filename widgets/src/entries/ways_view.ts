// `WaysExplorer`: speeds of collection strategies.
import type { WaysView } from "../models";
import type { Packed } from "../shared/buffers";
import { Selection } from "../shared/selection";
import { follow, followView, sendTo, widget } from "../shared/widget";
import { WaysPane } from "../ways/ways";

interface Traits {
  view: Packed;
  busy: string;
  problem: string;
}

export default widget<Traits>((model, el) => {
  const pane = new WaysPane(el, new Selection(), sendTo(model));
  const told = () => pane.status({ busy: model.get("busy"), problem: model.get("problem") });
  return [
    followView<WaysView>(model, "view", (view) => pane.draw(view)),
    follow(model, "busy", told),
    follow(model, "problem", told),
    () => pane.dispose(),
  ];
});
