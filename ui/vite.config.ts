import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

const OUT = "../src/omnigraph/server/static/ui";
// What the bundle is made of beside the folder `src`; tests/server/test_console_files.py reads the same.
const MADE_OF = [
  "index.html",
  "public/theme.js",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "vite.config.ts",
  "../src/omnigraph/editor/gq.tmLanguage.json",
  "../src/omnigraph/editor/pg.tmLanguage.json",
];

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((one) =>
    one.isDirectory() ? sources(join(folder, one.name)) : [join(folder, one.name)],
  );
}

/** Says beside the bundle which sources it was made of. */
function stamped(): Plugin {
  return {
    name: "stamped",
    apply: "build",
    closeBundle() {
      const files = [...MADE_OF, ...sources("src").filter((name) => name !== join("src", "wire.d.ts"))];
      const digests = Object.fromEntries(
        files.sort().map((name) => [name, createHash("sha256").update(readFileSync(name)).digest("hex")]),
      );
      if (!process.argv.includes("--outDir")) writeFileSync(join(OUT, "BUILD.json"), JSON.stringify({ sources: digests }, null, 1) + "\n");
    },
  };
}

const names = { entryFileNames: "[name].js", chunkFileNames: "[name].js", assetFileNames: "[name][extname]" };

export default defineConfig({
  base: "/ui/",
  plugins: [stamped()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    assetsDir: "",
    modulePreload: false,
    target: "es2022",
    rollupOptions: { output: names },
  },
  worker: { format: "es", rollupOptions: { output: names } },
  server: { proxy: { "/graphs": "http://127.0.0.1:8080", "/healthz": "http://127.0.0.1:8080", "/readyz": "http://127.0.0.1:8080" } },
});
