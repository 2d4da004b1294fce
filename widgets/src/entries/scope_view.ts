// `ScopeView`: the recording pane as a separate widget.
import type { ScopeView, StretchView } from "../models";
import { ScopePane } from "../scope/scope";
import type { Packed } from "../shared/buffers";
import { followViews, type StandaloneModel } from "../shared/standalone";
import { follow, followView, selectionOf, sendTo, widget, write } from "../shared/widget";

interface Traits extends StandaloneModel {
  stretch: Packed;
  operation: string;
}

export default widget<Traits>((model, el) => {
  const { selection, release } = selectionOf(model);
  const pane = new ScopePane(el, selection, sendTo(model), (operation) => {
    if (operation !== model.get("operation")) write(model, { operation });
  });
  return [
    release,
    ...followViews<ScopeView>(model, selection, (view) => pane.draw(view)),
    followView<StretchView>(model, "stretch", (stretch) => pane.show(stretch)),
    follow(model, "operation", (operation) => pane.mark(operation)),
    () => pane.dispose(),
  ];
});
