package rootfs

import (
	"path"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
)

// MaxID is the greatest id of a user or group inside.
const MaxID = 1<<16 - 1

// Bounds of the accounts of an image, which its author writes.
const (
	maxAccounts = 1 << 20  // bytes of its /etc/passwd, and of its /etc/group
	maxGroups   = 64       // of one user
	maxNamed    = 64 << 10 // bytes of a file that Names changes
	maxField    = 255
)

// Account returns the user that "USER[:GROUP]" names, by names or ids, as an image's /etc/passwd and /etc/group have
// it. Without GROUP the user has the groups that list it; with one, that alone. An id without an entry has the group 0,
// and neither name nor home. Errors: InvalidArgument, NotFound.
func Account(text string, passwd, group []byte) (cove.User, error) {
	name, wanted, grouped := strings.Cut(text, ":")
	if !isField(name) || grouped && !isField(wanted) {
		return cove.User{}, cove.Errorf(cove.InvalidArgument, "%.80q is no user", text).
			WithHint("write NAME, UID, or either with :GROUP")
	}
	u := cove.User{Shell: "/bin/sh"}
	number, numeric := parseID(name)
	entry := find(passwd, 7, func(f []string) bool {
		id, ok := parseID(f[2])
		_, gidOK := parseID(f[3])
		return ok && gidOK && isField(f[0]) && (f[0] == name || numeric && id == number)
	})
	switch {
	case entry != nil:
		u.UID, _ = parseID(entry[2])
		u.GID, _ = parseID(entry[3])
		u.Name = entry[0]
		if isPlace(entry[5]) {
			u.Home = entry[5]
		}
		if isPlace(entry[6]) {
			u.Shell = entry[6]
		}
	case numeric:
		u.UID = number
	case isNumber(name):
		return cove.User{}, tooLarge(name)
	default:
		return cove.User{}, cove.Errorf(cove.NotFound, "the image has no user %.80q in its /etc/passwd", name).
			WithHint("name one that it has, or an id, with --user")
	}
	if !grouped {
		u.Groups = groupsOf(u, group)
		return u, nil
	}
	if id, ok := parseID(wanted); ok {
		u.GID = id
		return u, nil
	}
	if isNumber(wanted) {
		return cove.User{}, tooLarge(wanted)
	}
	of := find(group, 4, func(f []string) bool { _, ok := parseID(f[2]); return ok && f[0] == wanted })
	if of == nil {
		return cove.User{}, cove.Errorf(cove.NotFound, "the image has no group %.80q in its /etc/group", wanted).
			WithHint("name one that it has, or an id, with --user")
	}
	u.GID, _ = parseID(of[2])
	return u, nil
}

// groupsOf returns the groups that list a user, at most maxGroups.
func groupsOf(u cove.User, group []byte) string {
	if u.Name == "" {
		return ""
	}
	var ids []string
	seen := map[int]bool{u.GID: true}
	find(group, 4, func(f []string) bool {
		id, ok := parseID(f[2])
		if !ok || seen[id] || len(ids) == maxGroups {
			return false
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if member == u.Name {
				seen[id] = true
				ids = append(ids, strconv.Itoa(id))
				break
			}
		}
		return false
	})
	return strings.Join(ids, ",")
}

// named returns /etc/passwd or /etc/group with a last line that gives an id a name, unless one has that id, and
// reports whether it has added the line. fields is how many a line of the file has.
func named(file []byte, fields, id int, line string) (data string, changed bool) {
	if find(file, fields, func(f []string) bool { has, ok := parseID(f[2]); return ok && has == id }) != nil {
		return string(file), false
	}
	data = string(file)
	if data != "" && !strings.HasSuffix(data, "\n") {
		data += "\n"
	}
	return data + line + "\n", true
}

// find returns the fields of the first line with so many that fits.
func find(data []byte, fields int, fits func([]string) bool) []string {
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(f) == fields && fits(f) {
			return f
		}
	}
	return nil
}

func parseID(text string) (id int, ok bool) {
	id, err := strconv.Atoi(text)
	return id, err == nil && id >= 0 && id <= MaxID && text[0] != '+' && text[0] != '-'
}

func isNumber(text string) bool { return strings.Trim(text, "0123456789") == "" }

func tooLarge(id string) error {
	return cove.Errorf(cove.InvalidArgument, "the id %s cannot be mapped into a sandbox, which has those from 0 to %d", id,
		MaxID).WithHint("name another user with --user NAME|UID[:GROUP]")
}

// isField reports whether a text may be a name in /etc/passwd, and a variable's value.
func isField(text string) bool {
	return text != "" && len(text) <= maxField && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == ':' || r == '/' || r == '\ufffd'
	})
}

// isPlace reports whether a text is an absolute path, as is.
func isPlace(text string) bool {
	return path.IsAbs(text) && path.Clean(text) == text && len(text) <= 1024 &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' })
}
