import { defineConfig, globalIgnores } from 'eslint/config';
import tseslint from 'typescript-eslint';

export default defineConfig(
  globalIgnores(['node_modules/', 'dist/']),
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: {
        projectService: true,
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
        // A default branch says what happens to every other case.
        { considerDefaultExhaustiveForUnions: true },
      ],
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/explicit-module-boundary-types': 'off',
      // A number reads the same in a template as elsewhere.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // `void promise` is how a promise is deliberately left alone.
      '@typescript-eslint/no-meaningless-void-operator': 'off',
      // `() => stop()` reads as well as a block, `return refuse(404)` as well as two statements.
      '@typescript-eslint/no-confusing-void-expression': [
        'error',
        { ignoreVoidOperator: true, ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true },
      ],
      // An environment variable, a header or a user name that is empty counts as none.
      '@typescript-eslint/prefer-nullish-coalescing': ['error', { ignorePrimitives: { string: true } }],
      // tsc's noPropertyAccessFromIndexSignature wants the brackets.
      '@typescript-eslint/dot-notation': ['error', { allowIndexSignaturePropertyAccess: true }],
      // An implementation of an asynchronous interface may have nothing to wait for.
      '@typescript-eslint/require-await': 'off',
      // An unused parameter keeps its place when its name begins with an underscore.
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      // A callback may have nothing to return or nothing to promise: `void | Promise<void>`.
      '@typescript-eslint/no-invalid-void-type': 'off',
      // An empty function says that nothing is to be done.
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
      // A test says what it expects; where it is wrong, it fails.
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
);
