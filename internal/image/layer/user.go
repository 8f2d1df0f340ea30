package layer

import (
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// User is a user of a root filesystem, by its /etc/passwd.
type User struct {
	Owner
	Name string // empty: a number that it does not have
	Home string
}

// UserOf returns who a word of USER is: USER or UID, with :GROUP or :GID or without; empty is root.
func UserOf(in rootfs.Stack, word string) (User, error) {
	if word == "" || word[0] == ':' {
		word = "0" + word
	}
	u, err := rootfs.AccountOf(in, word)
	if cove.ErrorCode(err) == cove.NotFound {
		return User{}, cove.Errorf(cove.InvalidArgument, "there is no user %.80q in the image", word)
	}
	if err != nil {
		return User{}, cove.Errorf(cove.InvalidArgument, "%s", cove.ErrorMessage(err))
	}
	if u.UID == 0 && u.Name == "" {
		u.Name, u.Home = "root", "/root"
	}
	if u.Home == "" {
		u.Home = "/"
	}
	return User{Owner: Owner{UID: u.UID, GID: u.GID}, Name: u.Name, Home: u.Home}, nil
}

// OwnerOf returns who a word of --chown is, as UserOf; a number without a group is that of the group, too.
func OwnerOf(in rootfs.Stack, word string) (*Owner, error) {
	u, err := UserOf(in, word)
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseUint(word, 10, 16); err == nil {
		u.GID = int(n)
	}
	return &u.Owner, nil
}
