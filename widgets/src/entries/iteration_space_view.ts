// `IterationSpaceView`: the iteration space, with its scrubber.
import { Instants } from "../instants";
import { lone } from "../lone";
import { Scrubber } from "../scrubber";
import { SpacePane } from "../space";
import type { IterationSpaceView } from "../models";

export default lone<IterationSpaceView>((host, selection, send) => {
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
