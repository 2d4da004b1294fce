// `PdgView`: the graph pane as a separate widget.
import { GraphPane, type GraphModel } from "../graph/graph";
import { follow, onRefused, selectionOf, sendTo, widget } from "../shared/widget";

interface PdgView {
  view: GraphModel;
  selected: number[];
  height: number;
}

export default widget<PdgView>((model, el) => {
  const { selection, release } = selectionOf(model);
  const pane = new GraphPane(el, selection, sendTo(model));
  return [
    release,
    onRefused(model, "fold", () => pane.refuse()),
    follow(model, "height", (height) => (pane.root.style.height = `${height}px`)),
    follow(model, "view", (view) => pane.draw(view)),
    () => pane.dispose(),
  ];
});
