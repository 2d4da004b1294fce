// `MemoryTimeline`: predicted live bytes alone.
import { lone } from "../lone";
import { MemoryPane } from "../memory";
import type { MemoryView } from "../models";

export default lone<MemoryView>((host, selection, send) => {
  const pane = new MemoryPane(host, selection, send);
  return { panes: [pane], draw: (model) => pane.draw(model) };
});
