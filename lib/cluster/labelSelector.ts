import { fieldsOf, listOf, textsOf, type Fields } from '../fields.ts';

/**
 * Returns whether a label selector (`matchLabels`, `matchExpressions`) selects an object with these labels. Also reads
 * the operators of node selectors, `Gt` and `Lt`. An unknown operator selects nothing.
 */
export function isSelected(labels: Fields = {}, { matchLabels, matchExpressions }: Fields): boolean {
  const isEqual = Object.entries(fieldsOf(matchLabels)).every(([key, value]) => labels[key] === value);
  return isEqual && listOf(matchExpressions).every((requirement) => meets(labels, requirement));
}

function meets(labels: Fields, { key, operator, values }: Fields): boolean {
  const value = labels[String(key)];
  const given = textsOf(values);
  const isIn = typeof value === 'string' && given.includes(value);
  switch (operator) {
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'In':
      return isIn;
    case 'NotIn':
      return !isIn;
    case 'Gt':
      return isInteger(value) && Number(value) > Number(given[0]);
    case 'Lt':
      return isInteger(value) && Number(value) < Number(given[0]);
    default:
      return false;
  }
}

function isInteger(value: unknown): boolean {
  return typeof value === 'string' && /^-?\d+$/.test(value);
}
