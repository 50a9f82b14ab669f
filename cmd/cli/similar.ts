/** Returns the candidate that the user probably meant: it begins with the word, or differs by at most two letters. */
export function findSimilar(word: string, candidates: readonly string[]): string | undefined {
  const begun = candidates.find((candidate) => word.length > 2 && candidate.startsWith(word));
  if (begun !== undefined) return begun;
  const [nearest] = candidates
    .map((candidate) => ({ candidate, distance: distanceOf(word, candidate) }))
    .sort((a, b) => a.distance - b.distance);
  // For a short word, two letters are most of it.
  return nearest && nearest.distance <= Math.min(2, word.length / 2) ? nearest.candidate : undefined;
}

/** Returns Levenshtein's distance: the number of letters to add, remove or replace. */
function distanceOf(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (const [index, letter] of Array.from(a).entries()) {
    const next = [index + 1];
    for (let column = 0; column < b.length; column += 1) {
      const [left = 0, above = 0, corner = 0] = [next[column], row[column + 1], row[column]];
      next.push(Math.min(left + 1, above + 1, corner + (letter === b[column] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
