// `LoopView`: the loop nest as a separate widget.
import { lone } from "../shared/lone";
import { LoopPane } from "../loops/loops";
import type { LoopView } from "../models";

export default lone<LoopView>((host, selection, send) => {
  const pane = new LoopPane(host, selection, send);
  return { panes: [pane], draw: (model) => pane.draw(model) };
});
