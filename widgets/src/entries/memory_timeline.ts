// `MemoryTimeline`: predicted live bytes as a separate widget.
import { createStandaloneWidget } from "../shared/standalone";
import { MemoryPane } from "../memory/memory";
import type { MemoryView } from "../models";

export default createStandaloneWidget<MemoryView>((host, selection, send) => {
  const pane = new MemoryPane(host, selection, send);
  return { panes: [pane], draw: (model) => pane.draw(model) };
});
