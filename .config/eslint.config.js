import { defineConfig, globalIgnores } from 'eslint/config';
import tseslint from 'typescript-eslint';

export default defineConfig(
  globalIgnores(['node_modules/', 'dist/']),
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: {
        project: 'tsconfig.json',
        tsconfigRootDir: import.meta.dirname + '/..',
      },
    },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      'no-console': 'error',
      eqeqeq: 'error',
      'prefer-const': 'error',
      'object-shorthand': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        // A default branch handles every other case.
        { considerDefaultExhaustiveForUnions: true },
      ],
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/explicit-module-boundary-types': 'off',
      // A number has the same text in a template as elsewhere.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // `void promise` marks a promise that is deliberately not awaited.
      '@typescript-eslint/no-meaningless-void-operator': 'off',
      // `() => stop()` is as readable as a block, and `return refuse(404)` as two statements.
      '@typescript-eslint/no-confusing-void-expression': [
        'error',
        { ignoreVoidOperator: true, ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true },
      ],
      // An empty environment variable, header or user name counts as missing.
      '@typescript-eslint/prefer-nullish-coalescing': ['error', { ignorePrimitives: { string: true } }],
      // tsc's noPropertyAccessFromIndexSignature requires the brackets.
      '@typescript-eslint/dot-notation': ['error', { allowIndexSignaturePropertyAccess: true }],
      // An implementation of an asynchronous interface may have nothing to await.
      '@typescript-eslint/require-await': 'off',
      // An unused parameter has a name that begins with an underscore.
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      // A callback may return nothing or a promise: `void | Promise<void>`.
      '@typescript-eslint/no-invalid-void-type': 'off',
      // An empty function means that there is nothing to do.
      '@typescript-eslint/no-empty-function': 'off',
    },
  },
  {
    files: ['lib/**', 'cmd/**'],
    rules: {
      'no-restricted-syntax': [
        'error',
        { selector: 'TSAsExpression > TSAsExpression', message: 'Check the value, or give it the right type.' },
      ],
    },
  },
  {
    files: ['cmd/**', 'test/**', '.config/**'],
    rules: { 'no-console': 'off' },
  },
  {
    files: ['test/**'],
    rules: {
      // Assertions of chai are expressions: `expect(x).to.be.true`.
      '@typescript-eslint/no-unused-expressions': 'off',
      // A test states what it expects, and fails if that is wrong.
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
);
