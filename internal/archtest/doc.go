// Package archtest holds the shape of the house: which package belongs to which layer, who may import whom, what the
// guest may link, and a few habits that no compiler checks. Numbers that may only fall are in testdata/bounds.txt. Its
// tests fail with the reason as text; the table is the one in ARCHITECTURE.md.
package archtest
