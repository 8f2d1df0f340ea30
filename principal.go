package cove

import (
	"strconv"
	"strings"
)

// Principal is the identity that asks for something, and that owns what it has made: the machine's owner, the holder of
// an API key, a local user, an address where no key is needed, a registered client of a gateway, or Cove itself. It is
// comparable. The zero Principal has no identity, and sees nothing.
type Principal struct {
	// Tenant is the tenant that the principal belongs to. It is empty: there are no
	// tenants yet, and the text form has no place for one.
	Tenant string

	kind principalKind
	name string // of its kind
}

type principalKind uint8

const (
	kindNobody  principalKind = iota
	kindOwner                 // of the machine; it has no name
	kindSystem                // Cove itself, or a part of it by name
	kindKey                   // by the name of the API key
	kindUser                  // by the user id, in decimal
	kindAddress               // by the address that a request comes from
	kindSandbox               // by the name of the sandbox that a program is in
	kindNamed                 // by a name that says no kind
)

// Beginnings of the text form.
const (
	textOwner     = "local" // whole
	prefixSystem  = "cove:"
	prefixKey     = "key:"
	prefixUser    = "uid:"
	prefixAddress = "ip:"
	prefixSandbox = "sandbox:"
)

// MachineOwner returns the principal that owns the machine, and sees everything on it.
func MachineOwner() Principal { return Principal{kind: kindOwner} }

// KeyHolder returns the principal that holds the API key of a name.
func KeyHolder(key string) Principal { return Principal{kind: kindKey, name: key} }

// LocalUser returns the principal that is a user of the machine, by its user id.
func LocalUser(uid uint32) Principal {
	return Principal{kind: kindUser, name: strconv.FormatUint(uint64(uid), 10)}
}

// Address returns the principal of requests from a network address that show no valid API key. Earlier versions had it
// own what such requests made on a server without keys; now only the machine's owner sees these objects.
func Address(address string) Principal { return Principal{kind: kindAddress, name: address} }

// RegisteredClient returns the principal that a gateway of its own knows by a name. Its text form is that name alone.
func RegisteredClient(name string) Principal { return Principal{kind: kindNamed, name: name} }

// InSandbox returns the principal that programs in a sandbox are, by its name, in
// records of earlier versions. It owns nothing.
func InSandbox(name string) Principal { return Principal{kind: kindSandbox, name: name} }

// System returns Cove itself, which sees everything, for what no caller asks for: recovery, reaping and pruning. part
// names a part of Cove in records, such as "agents"; it may be empty.
func System(part string) Principal { return Principal{kind: kindSystem, name: part} }

// ParsePrincipal returns the principal of a record, whose text form it is. It never returns Cove itself: a record gives
// no power over other records but the owner's. A text that begins like none of the kinds is a name.
func ParsePrincipal(text string) Principal {
	if text == "" {
		return Principal{}
	}
	if text == textOwner {
		return MachineOwner()
	}
	if name, ok := strings.CutPrefix(text, prefixKey); ok {
		return KeyHolder(name)
	}
	if name, ok := strings.CutPrefix(text, prefixAddress); ok {
		return Address(name)
	}
	if name, ok := strings.CutPrefix(text, prefixSandbox); ok {
		return InSandbox(name)
	}
	if name, ok := strings.CutPrefix(text, prefixUser); ok {
		if uid, err := strconv.ParseUint(name, 10, 32); err == nil && LocalUser(uint32(uid)).name == name {
			return LocalUser(uint32(uid))
		}
	}
	return Principal{kind: kindNamed, name: text}
}

// String returns the text form, as records, the audit log and the API have it: "local" for the machine's owner, else
// the kind and the name, such as "key:ci". The zero Principal, and Cove where no part is named, are empty.
func (p Principal) String() string {
	switch p.kind {
	case kindOwner:
		return textOwner
	case kindKey:
		return prefixKey + p.name
	case kindUser:
		return prefixUser + p.name
	case kindAddress:
		return prefixAddress + p.name
	case kindSandbox:
		return prefixSandbox + p.name
	case kindSystem:
		if p.name != "" {
			return prefixSystem + p.name
		}
	case kindNamed:
		return p.name
	}
	return ""
}

// IsOwner reports whether p owns the machine: its credentials, its directories and
// its services are that principal's to use.
func (p Principal) IsOwner() bool { return p.kind == kindOwner }

// Key returns the name of the API key that p holds, if it is one's holder.
func (p Principal) Key() (name string, is bool) { return p.name, p.kind == kindKey }

// IsCaller reports whether p is a caller of the API other than the machine's owner: the holder of a key, a local user,
// or an address. So is the zero Principal, of which nothing is known.
func (p Principal) IsCaller() bool {
	switch p.kind {
	case kindKey, kindUser, kindAddress, kindNobody:
		return true
	}
	return false
}

// SeesAll reports whether p sees every record: the machine's owner, and Cove itself.
func (p Principal) SeesAll() bool { return p.kind == kindOwner || p.kind == kindSystem }

// Sees reports whether p may see, change and end what owner owns: its own, and
// everything for those of [Principal.SeesAll].
func (p Principal) Sees(owner Principal) bool {
	return p.SeesAll() || p.kind != kindNobody && p == owner
}
