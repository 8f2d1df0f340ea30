package layer

import (
	"os"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
)

// User is a user of a tree, by its /etc/passwd.
type User struct {
	Owner
	Name string // empty: a number that it does not have
	Home string
}

// maxAccounts is the most bytes of a tree's /etc/passwd or /etc/group.
const maxAccounts = 1 << 20

// UserOf returns who a word of USER is: USER or UID, with :GROUP or :GID or without; empty is root.
func UserOf(tree, word string) (User, error) {
	name, group, grouped := strings.Cut(word, ":")
	u := User{Home: "/"}
	if name == "" {
		name = "0"
	}
	n, numeric := number(name)
	found := false
	for _, f := range accounts(tree, "etc/passwd") {
		uid, ok := 0, false
		if len(f) >= 6 {
			uid, ok = number(f[2])
		}
		if !ok || f[0] != name && !(numeric && uid == n) {
			continue
		}
		u.UID, u.Name, u.Home, found = uid, f[0], f[5], true
		u.GID, _ = number(f[3])
		break
	}
	switch {
	case found:
	case numeric:
		u.UID = n
		if n == 0 {
			u.Name, u.Home = "root", "/root"
		}
	default:
		return u, cove.Errorf(cove.InvalidArgument, "there is no user %.80q in the image", name)
	}
	var err error
	if grouped {
		u.GID, err = groupOf(tree, group)
	}
	return u, err
}

// OwnerOf returns who a word of --chown is, as UserOf; a number without a group is that of the group, too.
func OwnerOf(tree, word string) (*Owner, error) {
	u, err := UserOf(tree, word)
	if err != nil {
		return nil, err
	}
	if n, ok := number(word); ok {
		u.GID = n
	}
	return &u.Owner, nil
}

func groupOf(tree, group string) (int, error) {
	if n, ok := number(group); ok {
		return n, nil
	}
	for _, f := range accounts(tree, "etc/group") {
		if len(f) >= 3 && f[0] == group {
			if n, ok := number(f[2]); ok {
				return n, nil
			}
		}
	}
	return 0, cove.Errorf(cove.InvalidArgument, "there is no group %.80q in the image", group)
}

func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil
}

// accounts returns the fields of the lines of a tree's file; none where it cannot be read.
func accounts(tree, name string) (all [][]string) {
	place, info, ok := Find(tree, name)
	if !ok || !info.Mode().IsRegular() || info.Size() > maxAccounts {
		return nil
	}
	data, err := os.ReadFile(place)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		all = append(all, strings.Split(strings.TrimSuffix(line, "\n"), ":"))
	}
	return all
}
