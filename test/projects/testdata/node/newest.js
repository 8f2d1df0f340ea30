'use strict';
const semver = require('semver');

// newest returns the highest version that a range allows, or null.
function newest(versions, range) {
  return semver.maxSatisfying(versions, range);
}

module.exports = { newest };
