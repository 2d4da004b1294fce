// Which lines of a loop nest are known as which, so that folds outlive a change of the program.

/** What a line is known by: its text, and how many such lines are before it. */
export function foldKeys(lines: readonly { depth: number; text: string }[]): string[] {
  const seen = new Map<string, number>();
  return lines.map(({ depth, text }) => {
    const key = `${depth} ${text}`;
    const count = seen.get(key) ?? 0;
    seen.set(key, count + 1);
    return `${count} ${key}`;
  });
}
