// `RunMonitor`: the run pane as a separate widget.
import type { RunView } from "../models";
import { RunPane } from "../run/run";
import { unpack, type Packed } from "../shared/buffers";
import { Selection } from "../shared/selection";
import { follow, sendTo, widget } from "../shared/widget";

interface RunMonitor {
  run: Packed;
  acknowledged: number;
  problem: string;
}

export default widget<RunMonitor>((model, el) => {
  const pane = new RunPane(el, new Selection(), sendTo(model));
  return [
    follow(model, "run", (packed) => pane.draw(unpack<RunView>(packed))),
    follow(model, "acknowledged", (number) => pane.acknowledge(number)),
    follow(model, "problem", (text) => pane.problem(text)),
    () => pane.dispose(),
  ];
});
