// `PdgView`: the graph pane alone.
import type { RenderProps } from "@anywidget/types";
import { live } from "../shared/ended";
import { GraphPane, type GraphModel } from "../graph/graph";
import { follow, onRefused, selectionOf, sendTo } from "../shared/widget";

interface PdgView {
  view: GraphModel;
  selected: number[];
  height: number;
}

function render({ model, el }: RenderProps<PdgView>): () => void {
  const { selection, release } = selectionOf(model);
  const pane = new GraphPane(el, selection, sendTo(model));
  const leave = [
    release,
    onRefused(model, "fold", () => pane.refuse()),
    follow(model, "height", (height) => (pane.root.style.height = `${height}px`)),
    follow(model, "view", (view) => pane.draw(view)),
  ];
  return () => {
    leave.forEach((act) => act());
    pane.dispose();
  };
}

export default live(render);
