// `StrategiesExplorer`: speeds of collection strategies.
import type { StrategiesView } from "../models";
import type { Packed } from "../shared/buffers";
import { follow, followView, type Selectable, selectionOf, sendTo, widget } from "../shared/widget";
import { StrategiesPane } from "../strategies/strategies";

interface Traits extends Selectable {
  view: Packed;
  busy: string;
  problem: string;
}

export default widget<Traits>((model, el) => {
  const { selection, release } = selectionOf(model);
  const pane = new StrategiesPane(el, selection, sendTo(model));
  const told = () => pane.status({ busy: model.get("busy"), problem: model.get("problem") });
  return [
    release,
    followView<StrategiesView>(model, "view", (view) => pane.draw(view)),
    follow(model, "busy", told),
    follow(model, "problem", told),
    () => pane.dispose(),
  ];
});
