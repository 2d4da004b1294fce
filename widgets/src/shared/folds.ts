// Identity of loop nest lines, so that folds survive a change of the program.

/** The key of a line: its text, and the number of equal lines before it. */
export function foldKeys(lines: readonly { depth: number; text: string }[]): string[] {
  const seen = new Map<string, number>();
  return lines.map(({ depth, text }) => {
    const key = `${depth} ${text}`;
    const count = seen.get(key) ?? 0;
    seen.set(key, count + 1);
    return `${count} ${key}`;
  });
}
