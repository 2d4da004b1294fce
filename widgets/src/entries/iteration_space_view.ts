// `IterationSpaceView`: the iteration space with its time slider.
import { Instants } from "../shared/instants";
import { createStandaloneWidget } from "../shared/standalone";
import { Scrubber } from "../scrubber/scrubber";
import { SpacePane } from "../space/space";
import type { IterationSpaceView } from "../models";

export default createStandaloneWidget<IterationSpaceView>((host, selection, send) => {
  const scrubber = new Scrubber(host, selection, send);
  const space = new SpacePane(host, selection, send);
  const draw = (model: IterationSpaceView) => {
    const instants = new Instants(model);
    space.follow(instants);
    scrubber.draw(instants);
    space.draw(model);
  };
  return { panes: [scrubber, space], draw };
});
