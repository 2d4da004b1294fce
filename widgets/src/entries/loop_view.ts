// `LoopView`: the loop nest as a separate widget.
import { createStandaloneWidget } from "../shared/standalone";
import { LoopPane } from "../loops/loops";
import type { LoopView } from "../models";

export default createStandaloneWidget<LoopView>((host, selection, send) => {
  const pane = new LoopPane(host, selection, send);
  return { panes: [pane], draw: (model) => pane.draw(model) };
});
