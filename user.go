package cove

import (
	"encoding/json"
	"strconv"
	"strings"
)

// User is the account of a sandbox's processes, inside. The zero User is the default of whatever is made.
type User struct {
	UID    int // 0 is root inside
	GID    int
	Groups string `json:",omitzero"` // supplementary ones: ids with commas between
	Name   string // as /etc/passwd has it
	Home   string // absolute and writable
	Shell  string // absolute
	Agent  bool   `json:",omitzero"` // its programs have the system calls of agents, not those of snippets
	Root   bool   `json:",omitzero"` // of a user other than root: its programs may become root inside, as by sudo
}

var (
	// CodeUser is the account of snippets: the one without rights by convention.
	CodeUser = User{UID: 65534, GID: 65534, Name: "nobody", Home: Home, Shell: "/bin/sh"}
	// AgentUser is the account of terminals and agents.
	AgentUser = User{UID: 1000, GID: 1000, Name: "cove", Home: Home, Shell: "/bin/sh", Agent: true}
	// RootUser is the account of who installs packages: root of the sandbox's own user namespace.
	RootUser = User{UID: 0, Name: "root", Home: "/root", Shell: "/bin/sh"}
)

// IsRoot reports whether a user is root inside. The zero User is none.
func (u User) IsRoot() bool { return u.UID == 0 && u.Name != "" }

// MayBeRoot reports whether programs of a user are root inside, or may become it.
func (u User) MayBeRoot() bool { return u.IsRoot() || u.Root }

// IsOfImage reports whether a user is one that an image has, and not one of Cove's own.
func (u User) IsOfImage() bool {
	return u.Name != "" && u != CodeUser && u != AgentUser && u != RootUser
}

// GroupIDs returns the supplementary groups.
func (u User) GroupIDs() []int {
	var ids []int
	for text := range strings.SplitSeq(u.Groups, ",") {
		if id, err := strconv.Atoi(text); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

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
