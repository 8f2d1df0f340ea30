package policy

// Grant is a document's decision on something outside its rules. Without a decision it is refused; a denial wins.
type Grant string

const (
	Unsaid  Grant = ""
	Granted Grant = "allow"
	Refused Grant = "deny"
)

// Asked is a grant that needs an approval each time.
const Asked Grant = "ask"

// stricter returns the stricter of two grants: a denial wins, then a question.
func stricter(a, b Grant) Grant {
	for _, g := range []Grant{Refused, Asked, Granted} {
		if a == g || b == g {
			return g
		}
	}
	return Unsaid
}
