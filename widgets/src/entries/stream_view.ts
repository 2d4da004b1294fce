// `StreamView`: runs of a stream of kernels.
import type { StreamView } from "../models";
import type { Packed } from "../shared/buffers";
import {
  follow,
  followView,
  type Selectable,
  selectionOf,
  sendTo,
  widget,
  write,
} from "../shared/widget";
import { StreamPane } from "../streams/streams";

interface Traits extends Selectable {
  view: Packed;
  step: number;
}

export default widget<Traits>((model, el) => {
  const { selection, release } = selectionOf(model);
  const pane = new StreamPane(el, selection, sendTo(model), (step) => write(model, { step }));
  return [
    release,
    followView<StreamView>(model, "view", (view) => pane.draw(view)),
    follow(model, "step", (step) => pane.complete(step)),
    () => pane.dispose(),
  ];
});
