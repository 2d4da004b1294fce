// `Explorer`: all panes in one widget.
import type { RenderProps } from "@anywidget/types";
import { live } from "../shared/ended";
import { ExplorerView, type ExplorerTraits } from "../explorer/explorer";

function render({ model, el }: RenderProps<ExplorerTraits>): () => void {
  el.style.containerType = "inline-size";
  const view = new ExplorerView(model, el);
  return () => view.dispose();
}

export default live(render);
