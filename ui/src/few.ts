// Some hundred nodes with arrows and labels, drawn by WebGL.
import Graph from "graphology";
import Sigma from "sigma";
import { FONT, LABEL_SIZE, colours, degreesOf, drawRing, type Calls, type DrawnEdge, type DrawnNode, type Drawing } from "./drawing";

export function few(box: HTMLElement, nodes: DrawnNode[], edges: DrawnEdge[], colourOf: (type: string) => string, calls: Calls): Drawing {
  const graph = new Graph({ type: "directed", multi: true });
  const degrees = degreesOf(edges);
  for (const node of nodes) {
    const size = Math.min(5 + Math.sqrt(degrees.get(node.key) ?? 0), 14);
    graph.mergeNode(node.key, { x: Math.random(), y: Math.random(), size, label: node.label, color: colourOf(node.type) });
  }
  for (const edge of edges) {
    if (graph.hasNode(edge.from) && graph.hasNode(edge.to) && !graph.hasEdge(edge.key))
      graph.addEdgeWithKey(edge.key, edge.from, edge.to, { label: edge.type, size: 1.2, type: "arrow" });
  }
  const colour = colours();
  const sigma = new Sigma(graph, box, {
    defaultEdgeColor: colour.edge,
    labelColor: { color: colour.text },
    edgeLabelColor: { color: colour.quiet },
    labelFont: FONT,
    edgeLabelFont: FONT,
    edgeLabelSize: 10,
    labelSize: LABEL_SIZE,
    renderEdgeLabels: edges.length <= 20,
    labelRenderedSizeThreshold: 4,
    labelDensity: nodes.length <= 80 ? 20 : 1,
    stagePadding: 50,
    hideEdgesOnMove: edges.length > 5_000,
    allowInvalidContainer: true,
    zIndex: true,
    defaultDrawNodeHover: (context, node) => drawRing(context, node, colour),
  });
  sigma.on("clickNode", ({ node }) => calls.choose(node));
  sigma.on("doubleClickNode", ({ node, preventSigmaDefault }) => {
    preventSigmaDefault();
    calls.expand(node);
  });
  const numbers = new Map(nodes.map((node, at) => [node.key, at]));
  let highlighted: string | undefined;
  return {
    place(places) {
      // One event for all nodes, not one for each.
      graph.updateEachNodeAttributes((key, attributes) => {
        const at = numbers.get(key)!;
        return { ...attributes, x: places[2 * at], y: places[2 * at + 1] };
      }, { attributes: ["x", "y"] });
    },
    choose(key) {
      if (highlighted !== undefined) graph.setNodeAttribute(highlighted, "highlighted", false);
      highlighted = key !== undefined && graph.hasNode(key) ? key : undefined;
      if (highlighted !== undefined) graph.setNodeAttribute(highlighted, "highlighted", true);
    },
    zoom(factor) {
      const camera = sigma.getCamera();
      camera.setState({ ratio: camera.ratio / factor });
    },
    showAll: () => void sigma.getCamera().setState({ x: 0.5, y: 0.5, ratio: 1, angle: 0 }),
    end: () => sigma.kill(),
  };
}
