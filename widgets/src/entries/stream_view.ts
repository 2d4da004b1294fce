// `StreamView`: runs of a stream of kernels.
import type { StreamView } from "../models";
import type { Packed } from "../shared/buffers";
import { Selection } from "../shared/selection";
import { follow, followView, sendTo, widget, write } from "../shared/widget";
import { StreamPane } from "../streams/streams";

interface Traits {
  view: Packed;
  selected: number[];
  step: number;
}

export default widget<Traits>((model, el) => {
  const pane = new StreamPane(el, new Selection(), sendTo(model), ({ selected, step }) =>
    write(model, { selected: [...selected], step }),
  );
  const placed = () => pane.place({ selected: model.get("selected"), step: model.get("step") });
  return [
    followView<StreamView>(model, "view", (view) => pane.draw(view)),
    follow(model, "selected", placed),
    follow(model, "step", placed),
    () => pane.dispose(),
  ];
});
