// Light or dark: as the system says, until the reader chooses.
import { computed, effect, signal } from "@preact/signals";

type Choice = "" | "light" | "dark";
const KEY = "omnigraph.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", () => (systemDark.value = system.matches));

const choice = signal<Choice>((localStorage.getItem(KEY) as Choice | null) ?? "");
export const dark = computed(() => (choice.value ? choice.value === "dark" : systemDark.value));
effect(() => {
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
});

export function toggle(): void {
  choice.value = dark.value ? "light" : "dark";
  localStorage.setItem(KEY, choice.value);
}
