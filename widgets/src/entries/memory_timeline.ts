// `MemoryTimeline`: predicted live bytes as a separate widget.
import { lone } from "../shared/lone";
import { MemoryPane } from "../memory/memory";
import type { MemoryView } from "../models";

export default lone<MemoryView>((host, selection, send) => {
  const pane = new MemoryPane(host, selection, send);
  return { panes: [pane], draw: (model) => pane.draw(model) };
});
