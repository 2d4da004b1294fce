// `MemoryTimeline`: predicted live bytes alone.
import { lone } from "../lone";
import { MemoryPane, type MemoryModel } from "../memory";

export default lone<MemoryModel>((host, selection, send) => {
  const pane = new MemoryPane(host, selection, send);
  return { panes: [pane], draw: (model) => pane.draw(model) };
});
