package credential

import (
	"crypto/rand"
	"regexp"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
)

// randomPart is the part of a shape that stands for so many random letters and digits.
var randomPart = regexp.MustCompile(`\{([0-9]{1,3})\}`)

const (
	defaultShape = "{40}"
	minRandom    = 16 // characters of a placeholder, so that no two are equal
	maxShape     = 1 << 10
)

// checkShape refuses shapes with spaces or with too few random characters.
func checkShape(shape string) error {
	random := 0
	for _, m := range randomPart.FindAllStringSubmatch(shape, -1) {
		n, _ := strconv.Atoi(m[1])
		random += n
	}
	rest := randomPart.ReplaceAllString(shape, "")
	if random < minRandom || random+len(rest) > maxShape || !visible(rest) || strings.ContainsAny(rest, "{}") {
		return cove.Errorf(cove.InvalidArgument, "a shape is one word, with {N} for N random characters, at least %d",
			minRandom).WithHint(`for example "sk-{40}"`)
	}
	return nil
}

// fill returns a placeholder of a shape.
func fill(shape string) string {
	return randomPart.ReplaceAllStringFunc(shape, func(b string) string {
		n, _ := strconv.Atoi(b[1 : len(b)-1])
		return letters(n)
	})
}

// letters returns n random letters and digits.
func letters(n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 0, n)
	for len(out) < n {
		var random [64]byte
		rand.Read(random[:])
		for _, r := range random {
			if int(r) < 4*len(alphabet) && len(out) < n { // uniform
				out = append(out, alphabet[int(r)%len(alphabet)])
			}
		}
	}
	return string(out)
}
