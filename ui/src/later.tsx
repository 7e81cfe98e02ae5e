// The big parts, each in a file of its own that is fetched when a page first needs it.
import type { FunctionComponent, VNode } from "preact";
import { useAsked } from "./asked";
import { Problem } from "./bits";

/** A component that is fetched; `place` stands where it will be, as big as it will be. */
function later<Props extends object>(load: () => Promise<FunctionComponent<Props>>, place: VNode) {
  return function Later(props: Props) {
    const { value: Part, failure } = useAsked(load, []);
    if (failure) return <Problem failure={failure} />;
    return Part ? <Part {...props} /> : place;
  };
}

export const Editor = later(() => import("./editor").then((found) => found.Editor), <div class="editor" />);
export const Canvas = later(() => import("./canvas").then((found) => found.Canvas), <div class="canvas" />);
