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

/** Marks of pages that set a theme: JupyterLab and nbconvert, VS Code, Furo, Colab. Others announce the system's. */
const IN_DARK =
  "[data-jp-theme-light=false],[data-theme=dark],[theme=dark],.vscode-dark,.vscode-high-contrast";
const IN_LIGHT =
  "[data-jp-theme-light=true],[data-theme=light],.vscode-light,.vscode-high-contrast-light";

const rules = Object.entries(DARK).flatMap(([light, dark]) =>
  ["fill", "stroke"].map(
    (name) => `.trl-static [${name}="${light}"]{${name}:light-dark(${light},${dark})}`,
  ),
);
const STYLE =
  "<style>.trl-static{color-scheme:light dark}" +
  `:is(${IN_DARK}) .trl-static{color-scheme:dark}:is(${IN_LIGHT}) .trl-static{color-scheme:light}` +
  ":where(body .trl-static){max-width:100%;height:auto}" +
  `.trl-static .graph text{fill:light-dark(#000,${DARK[LIGHT.ink]})}${rules.join("")}</style>`;

/** Make a picture follow the theme of the page or program that shows it. */
export function addTheme(svg: string): string {
  return svg.replace(/<svg([^>]*)>/, `<svg class="trl-static"$1>${STYLE}`);
}

/** The same picture as a part of another. */
export function removeTheme(svg: string): string {
  return svg.replace(STYLE, "").replace(' class="trl-static"', "");
}
