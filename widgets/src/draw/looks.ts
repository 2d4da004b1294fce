// Colours of axes, text and backgrounds: those of the page, or these defaults for light and dark themes.

const LIGHT = {
  ink: "#222222",
  soft: "#777777",
  line: "#dddddd",
  paper: "#ffffff",
  strong: "#005a91", // loops, conditions
  moved: "#8a5200", // freed or transferred values
  vermilion: "#d55e00",
} as const;

type Look = keyof typeof LIGHT;

const look = (name: Look) => `var(--trl-${name}, ${LIGHT[name]})`;

export const INK = look("ink");
export const SOFT = look("soft");
export const LINE = look("line");
export const PAPER = look("paper");
export const STRONG = look("strong");
export const MOVED = look("moved");
export const LIMIT = look("vermilion");

/** Dark variants of the colours in static pictures; those of graphs too (timerl_nb/base/graphviz_text.py). */
const DARK: Record<string, string> = {
  [LIGHT.ink]: "#e6e6e6",
  [LIGHT.soft]: "#a4a9af",
  [LIGHT.line]: "#3a3f45",
  [LIGHT.paper]: "#16181b",
  [LIGHT.strong]: "#6db8ec",
  [LIGHT.moved]: "#e2a54a",
  white: "#16181b",
  "#dfeef8": "#17384c",
  "#fbe9c6": "#4a3a12",
  "#f6d3c1": "#542c1c",
  "#d3ecdf": "#16402f",
  "#f2f2f2": "#2e2e2e",
};

const rules = Object.entries(DARK).map(
  ([light, dark]) =>
    `.trl-static [fill="${light}"]{fill:${dark}}.trl-static [stroke="${light}"]{stroke:${dark}}`,
);
const STYLE =
  "<style>@media (prefers-color-scheme:dark){.trl-static .graph text" +
  `{fill:${DARK[LIGHT.ink]}}${rules.join("")}}</style>`;

/** Make a picture follow the theme of its environment, if the environment announces one. */
export function themed(svg: string): string {
  return svg.replace(/<svg([^>]*)>/, `<svg class="trl-static"$1>${STYLE}`);
}

/** The same picture as a part of another. */
export function unthemed(svg: string): string {
  return svg.replace(STYLE, "").replace(' class="trl-static"', "");
}
