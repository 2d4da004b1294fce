// `ScopeView`: a recording alone.
import type { RenderProps } from "@anywidget/types";
import { live } from "../shared/ended";
import { unpack, type Packed } from "../shared/buffers";
import { followed, type Lone } from "../shared/lone";
import type { ScopeView, StretchView } from "../models";
import { ScopePane } from "../scope/scope";
import { follow, selectionOf, sendTo } from "../shared/widget";

interface Traits extends Lone {
  stretch: Packed;
  operation: string;
}

function render({ model, el }: RenderProps<Traits>): () => void {
  const { selection, release } = selectionOf(model);
  const pane = new ScopePane(el, selection, sendTo(model), (operation) => {
    if (operation === model.get("operation")) return;
    model.set("operation", operation);
    model.save_changes();
  });
  const leave = [
    release,
    ...followed<ScopeView>(model, selection, (view) => pane.draw(view)),
    follow(model, "stretch", (packed) => {
      const stretch = unpack<StretchView>(packed);
      if (stretch) pane.show(stretch);
    }),
    follow(model, "operation", (operation) => pane.mark(operation)),
  ];
  return () => {
    leave.forEach((act) => act());
    pane.dispose();
  };
}

export default live(render);
