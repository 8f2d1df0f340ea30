// Package selftest holds tests of the test VM itself: that it has what the
// suites run in it count on. Package vmtest runs them inside.
package selftest
