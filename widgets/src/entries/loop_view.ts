// `LoopView`: the loop nest alone.
import { lone } from "../lone";
import { LoopPane, type LoopModel } from "../loops";

export default lone<LoopModel>((host, selection, send) => {
  const pane = new LoopPane(host, selection, send);
  return { panes: [pane], draw: (model) => pane.draw(model) };
});
