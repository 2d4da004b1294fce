// `RunMonitor`: the run alone.
import type { RenderProps } from "@anywidget/types";
import { live } from "../shared/ended";
import { unpack, type Packed } from "../shared/buffers";
import { RunPane } from "../run/run";
import { Selection } from "../shared/selection";
import { follow, sendTo } from "../shared/widget";
import type { RunView } from "../models";

interface RunMonitor {
  run: Packed;
  acknowledged: number;
  problem: string;
}

function render({ model, el }: RenderProps<RunMonitor>): () => void {
  const pane = new RunPane(el, new Selection(), sendTo(model));
  const leave = [
    follow(model, "run", (packed) => pane.draw(unpack<RunView>(packed))),
    follow(model, "acknowledged", (number) => pane.acknowledge(number)),
    follow(model, "problem", (text) => pane.problem(text)),
  ];
  return () => {
    leave.forEach((act) => act());
    pane.dispose();
  };
}

export default live(render);
