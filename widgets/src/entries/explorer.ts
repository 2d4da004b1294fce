// `Explorer`: all panes in one widget.
import { ExplorerView, type ExplorerTraits } from "../explorer/explorer";
import { widget } from "../shared/widget";

export default widget<ExplorerTraits>((model, el) => {
  el.style.containerType = "inline-size";
  const view = new ExplorerView(model, el);
  return [() => view.dispose()];
});
