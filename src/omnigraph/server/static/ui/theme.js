// Before the first paint: the colours that src/theme.ts will find chosen. A file of its own, as no script may stand in the page.
document.documentElement.dataset.theme = localStorage.getItem("omnigraph.theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
