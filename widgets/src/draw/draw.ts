// Static picture of any view-model: equal in Python, which runs this code in V8, and in the page.
import type {
  ComparisonView,
  IterationSpaceView,
  LaunchView,
  LoopView,
  MemoryView,
  PipelineView,
  RunView,
  ScopeView,
  StreamView,
  SweepView,
  ValuesView,
  StrategiesView,
} from "../models";
import { run, sweep } from "./charts";
import { comparison } from "./comparison";
import { launches } from "./launches";
import { memory } from "./memory";
import { nest } from "./nest";
import { pipeline } from "./pipeline";
import { scope } from "./scope";
import { exportPicture, drawText } from "./sheet";
import { space } from "./space";
import { streams } from "./streams";
import { values } from "./values";
import { strategies } from "./strategies";

export type Drawable =
  | ComparisonView
  | IterationSpaceView
  | LaunchView
  | LoopView
  | MemoryView
  | PipelineView
  | RunView
  | ScopeView
  | StreamView
  | SweepView
  | ValuesView
  | StrategiesView;

/** A view as SVG. A view without a drawing becomes the first lines of its text. */
export function draw(view: Drawable | { view: "text" }, said: string, most = 120): string {
  switch (view.view) {
    case "comparison":
      return comparison(view);
    case "space":
      return space(view, said);
    case "launches":
      return launches(view);
    case "loop":
      return nest(view);
    case "memory":
      return memory(view);
    case "pipeline":
      return pipeline(view);
    case "run":
      return exportPicture(run(view, said));
    case "scope":
      return scope(view);
    case "streams":
      return streams(view);
    case "sweep":
      return exportPicture(sweep(view, view.summary));
    case "values":
      return exportPicture(values(view));
    case "strategies":
      return strategies(view);
    default:
      return drawText(said, most);
  }
}
