'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { newest } = require('../newest.js');

test('the highest of a range', () => {
  assert.strictEqual(newest(['1.2.0', '1.10.0', '2.0.0'], '^1.2.0'), '1.10.0');
});

test('none of a range', () => {
  assert.strictEqual(newest(['1.2.0'], '^2.0.0'), null);
});
