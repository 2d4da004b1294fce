// Alignment of curves with different x positions on one axis.

export interface Curve {
  readonly at: ArrayLike<number>;
  readonly values: ArrayLike<number | undefined>;
}

/** All positions in order, and each curve's values there; undefined for a missing value. */
export function align(curves: readonly Curve[]): {
  at: number[];
  values: (number | undefined)[][];
} {
  const places = new Set(curves.flatMap((curve) => Array.from(curve.at)));
  const at = [...places].sort((a, b) => a - b);
  const values = curves.map((curve) => {
    const known = new Map<number, number | undefined>(
      Array.from(curve.at, (place, k) => [place, curve.values[k]]),
    );
    return at.map((place) => known.get(place));
  });
  return { at, values };
}
