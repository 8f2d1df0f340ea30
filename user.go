package cove

import "encoding/json"

// User is the account of a sandbox's processes, inside. The zero User is the default of whatever is made.
type User struct {
	UID   int    // 0 is root inside; the gid is the same
	Name  string // as /etc/passwd has it
	Home  string // absolute and writable
	Shell string // absolute
}

var (
	// CodeUser is the account of snippets: the one without rights by convention.
	CodeUser = User{UID: 65534, Name: "nobody", Home: Home, Shell: "/bin/sh"}
	// AgentUser is the account of terminals and agents.
	AgentUser = User{UID: 1000, Name: "cove", Home: Home, Shell: "/bin/sh"}
	// RootUser is the account of who installs packages: root of the sandbox's own user namespace.
	RootUser = User{UID: 0, Name: "root", Home: "/root", Shell: "/bin/sh"}
)

// IsRoot reports whether a user is root inside. The zero User is none.
func (u User) IsRoot() bool { return u.UID == 0 && u.Name != "" }

// userWords are the words for the known users in records.
var userWords = map[string]User{"code": CodeUser, "agent": AgentUser, "root": RootUser}

// MarshalJSON writes the known users as words, and any other user as an object.
func (u User) MarshalJSON() ([]byte, error) {
	for word, known := range userWords {
		if u == known {
			return json.Marshal(word)
		}
	}
	type plain User
	return json.Marshal(plain(u))
}

// UnmarshalJSON reads what MarshalJSON writes, in which an empty word is CodeUser.
func (u *User) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil {
		known, ok := userWords[word]
		if !ok && word != "" {
			return Errorf(Corrupt, "%.80q is no user", word)
		}
		*u = known
		if word == "" {
			*u = CodeUser
		}
		return nil
	}
	type plain User
	return json.Unmarshal(data, (*plain)(u))
}
