import { expect } from 'chai';
import {
  choice,
  count,
  findFault,
  flag,
  list,
  mapping,
  matches,
  nullable,
  object,
  optional,
  readStated,
  text,
  time,
  type Static,
} from '../lib/schema.ts';

const animal = object({
  name: text({ minLength: 1, maxLength: 2, pattern: '^[^ ]*$' }),
  legs: optional(count({ maximum: 4 })),
  kind: choice(['cat', 'dog'], { description: 'Which one.' }),
  format: choice([1, 2]),
  born: time(),
  tame: flag(),
  toys: list(text(), { maxItems: 2, where: (toys) => new Set(toys).size === toys.length }),
  owners: optional(mapping(text({ pattern: '^[a-z_]+$' }), nullable(text()))),
});

const cat: Static<typeof animal> = {
  name: '🐈🐈',
  legs: 4,
  kind: 'cat',
  format: 1,
  born: '2026-11-01T00:00:00Z',
  tame: true,
  toys: ['ball', 'mouse'],
  owners: { eve: 'x', bob: null },
};

/** Returns where a changed value differs from its statement; undefined if it does not. */
function faultOf(changes: object): string | undefined {
  return findFault(animal, { ...cat, ...changes })?.join('.');
}

describe('a schema', () => {
  it('accepts the stated fields, also without optional ones', () => {
    expect(matches(animal, cat)).to.equal(true);
    expect(faultOf({ legs: undefined, owners: undefined, toys: [], other: 1 })).to.equal(undefined);
  });

  it('reads the stated fields alone, in mappings and lists too', () => {
    const owner = object({ name: text() });
    const house = object({ owners: mapping(text(), owner), guests: optional(list(owner)), notes: mapping(text()) });
    const stated = { owners: { eve: { name: 'Eve' } }, guests: [{ name: 'Bob' }], notes: { any: { value: 1 } } };
    const more = { owners: { eve: { name: 'Eve', age: 1 } }, guests: [{ name: 'Bob', age: 2 }], rooms: 3 };
    expect(readStated(house, { ...stated, ...more })).to.deep.equal(stated);
    expect(readStated(house, { ...stated, guests: [{}] })).to.equal(undefined);
    expect(readStated(house, JSON.parse('{"owners":{},"notes":{},"__proto__":{"guests":1}}'))).to.deep.equal({
      owners: {},
      notes: {},
    });
  });

  it('refuses values of another type, and a missing field', () => {
    for (const value of [undefined, null, [], 'cat', 1]) expect(findFault(animal, value)).to.deep.equal([]);
    for (const key of ['name', 'kind', 'format', 'born', 'tame', 'toys'])
      for (const value of [undefined, null, {}, [1], 1.5]) {
        expect(faultOf({ [key]: value })?.split('.')[0], key).to.equal(key);
      }
    expect(faultOf({ toys: ['ball', 1] })).to.equal('toys.1');
    expect(faultOf({ owners: { eve: 1 } })).to.equal('owners.eve');
    expect(faultOf({ owners: [] })).to.equal('owners');
  });

  it('refuses values beyond its limits, and counts characters', () => {
    const wrong = { name: ['', 'abc', '🐈🐈🐈', ' '], legs: [5, -1, 1.5, '4', null], kind: ['cow'], format: [3, '1'] };
    for (const [key, values] of Object.entries({
      ...wrong,
      born: ['never'],
      toys: [
        ['a', 'b', 'c'],
        ['a', 'a'],
      ],
    }))
      for (const value of values) expect(faultOf({ [key]: value }), `${key} ${String(value)}`).to.equal(key);
  });

  it('tests keys of a mapping, but reads no inherited value', () => {
    expect(faultOf({ owners: { Eve: 'x' } })).to.equal('owners.Eve');
    expect(faultOf({ owners: JSON.parse('{ "__proto__": 1 }') as object })).to.equal('owners.__proto__');
    expect(matches(object({ name: text() }), JSON.parse('{ "__proto__": { "name": "x" } }'))).to.equal(false);
    expect(matches(object({ toString: optional(text()) }), {})).to.equal(true);
  });

  it('is a schema of OpenAPI', () => {
    expect(
      object({ kind: optional(choice(['cat', 'dog'], { description: 'Which one.' })), size: count() }),
    ).to.deep.equal({
      type: 'object',
      required: ['size'],
      properties: {
        kind: { type: 'string', enum: ['cat', 'dog'], description: 'Which one.' },
        size: { type: 'integer', format: 'int64', minimum: 0 },
      },
    });
  });
});
