package layer

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Chmod is a mode to give: an octal number, or what chmod(1) takes, such as "u=rwX,go=rX".
type Chmod struct {
	text    string
	octal   bool
	mode    fs.FileMode
	clauses []clause
}

// clause is a part of a symbolic mode.
type clause struct {
	who  fs.FileMode // permission bits of those that it is for
	do   byte        // '+', '-' or '='
	what fs.FileMode // likewise of all, and special bits
	exec bool        // X: as x for directories, and for files with an x
}

const allBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// ParseChmod reads a mode. Errors: InvalidArgument.
func ParseChmod(text string) (*Chmod, error) {
	bad := cove.Errorf(cove.InvalidArgument, "the mode %.40q cannot be read", text).
		WithHint("write it as 755, or as u=rwX,go=rX")
	if n, err := strconv.ParseUint(text, 8, 12); err == nil {
		return &Chmod{text: text, octal: true, mode: modeOf(uint32(n))}, nil
	}
	c := &Chmod{text: text}
	for part := range strings.SplitSeq(text, ",") {
		at := strings.IndexAny(part, "+-=")
		if at < 0 {
			return nil, bad
		}
		who := fs.FileMode(0)
		for _, r := range part[:at] {
			bits, ok := map[rune]fs.FileMode{'u': 0o700 | fs.ModeSetuid, 'g': 0o070 | fs.ModeSetgid, 'o': 0o007 | fs.ModeSticky,
				'a': allBits}[r]
			if !ok {
				return nil, bad
			}
			who |= bits
		}
		if at == 0 {
			who = allBits
		}
		for rest := part[at:]; rest != ""; {
			one := clause{who: who, do: rest[0]}
			n := 1
			for ; n < len(rest) && !strings.ContainsRune("+-=", rune(rest[n])); n++ {
				switch rest[n] {
				case 'r':
					one.what |= 0o444
				case 'w':
					one.what |= 0o222
				case 'x':
					one.what |= 0o111
				case 'X':
					one.exec = true
				case 's':
					one.what |= fs.ModeSetuid | fs.ModeSetgid
				case 't':
					one.what |= fs.ModeSticky
				default:
					return nil, bad
				}
			}
			c.clauses, rest = append(c.clauses, one), rest[n:]
		}
	}
	return c, nil
}

// MarshalText implements encoding.TextMarshaler.
func (c *Chmod) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Chmod) UnmarshalText(text []byte) error {
	read, err := ParseChmod(string(text))
	if err == nil {
		*c = *read
	}
	return err
}

// of returns the mode of what had another.
func (c *Chmod) of(mode fs.FileMode) fs.FileMode {
	if c.octal {
		return mode.Type() | c.mode
	}
	for _, one := range c.clauses {
		what := one.what
		if one.exec && (mode.IsDir() || mode&0o111 != 0) {
			what |= 0o111
		}
		switch what &= one.who; one.do {
		case '+':
			mode |= what
		case '-':
			mode &^= what
		default:
			mode = mode&^(one.who&allBits) | what
		}
	}
	return mode
}

// modeOf returns the mode that permission bits of the kernel's say.
func modeOf(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}
