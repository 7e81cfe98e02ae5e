// The parts of the layout that its own declarations leave out.
declare module "graphology-layout-forceatlas2/defaults.js" {
  import type { ForceAtlas2Settings } from "graphology-layout-forceatlas2";
  const defaults: ForceAtlas2Settings;
  export default defaults;
}

declare module "graphology-layout-forceatlas2/iterate.js" {
  import type { ForceAtlas2Settings } from "graphology-layout-forceatlas2";
  /** One round: moves what `nodes` holds. */
  export default function iterate(settings: ForceAtlas2Settings, nodes: Float32Array, edges: Float32Array): object;
}
