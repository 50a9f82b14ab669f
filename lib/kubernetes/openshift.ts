/** A type of `@kubernetes/client-node` as JSON has it: times are strings. */
export type JsonOf<T> = T extends Date
  ? string
  : T extends readonly (infer Item)[]
    ? readonly JsonOf<Item>[]
    : T extends object
      ? { readonly [Key in keyof T]: JsonOf<T[Key]> }
      : T;
