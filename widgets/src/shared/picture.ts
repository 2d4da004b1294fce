// Export of pictures as files.
import { button } from "./markup";

/** Buttons that save a picture as SVG and as PNG; `take` returns its text, or null while it is empty. */
export function pictureButtons(name: string, take: () => string | null): HTMLElement[] {
  const writers = { SVG: saveSvg, PNG: savePng };
  return Object.entries(writers).map(([format, write]) => {
    const label = `save ${name} as ${format}`;
    const act = () => {
      const taken = take();
      if (taken) void write(new Blob([taken], { type: "image/svg+xml" }), name);
    };
    return button(format, act, { class: "trl-quiet", label });
  });
}

function saveSvg(picture: Blob, name: string): void {
  save(picture, `${name}.svg`);
}

/** Two pixels per unit. */
async function savePng(picture: Blob, name: string): Promise<void> {
  const url = URL.createObjectURL(picture);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * image.naturalWidth;
    canvas.height = 2 * image.naturalHeight;
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
    if (blob) save(blob, `${name}.png`);
  } finally {
    URL.revokeObjectURL(url);
  }
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
