// The page has painted its frame before the console begins to work: what is fetched meanwhile waits for that.
const begin = () => void import("./main");
if (document.hidden) begin(); // nothing is painted behind another tab
else requestAnimationFrame(() => setTimeout(begin));
