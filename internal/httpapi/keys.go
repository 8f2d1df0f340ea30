package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/egress/model"
)

// Key is one API key: who holds it, and the SHA-256 of it in hex. Keys are long
// and random (config.NewAPIKey), so a plain hash of one can be stored.
type Key struct {
	Name string
	Hash string
}

type keyring []struct {
	name string
	hash [sha256.Size]byte
}

func newKeyring(keys []Key) (keyring, error) {
	ring := make(keyring, len(keys))
	for i, k := range keys {
		b, err := hex.DecodeString(k.Hash)
		if err != nil || len(b) != sha256.Size {
			return nil, cove.Errorf(cove.InvalidArgument,
				"the hash of API key %.64q is not a SHA-256 in hex (64 digits)", k.Name).
				WithHint("make one with: cove config new-key")
		}
		ring[i].name = k.Name
		copy(ring[i].hash[:], b)
	}
	return ring, nil
}

// find returns the name of a presented key. It looks at every entry, so that the time it takes says nothing.
func (ring keyring) find(presented string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(presented))
	for _, k := range ring {
		if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
			name, ok = k.name, true
		}
	}
	return name, ok
}

// shownKey returns the wire form of the key that a principal holds: its grant, and its use of models.
func shownKey(who cove.Principal, g access.Grant, used model.Usage) api.Key {
	name, _ := who.Key()
	k := api.Key{Name: name, Scopes: make([]string, len(g.Scopes)),
		ModelsUsed: api.ModelsUsed{Requests: used.Requests, Tokens: used.Tokens(), Cost: used.Cost}}
	for i, s := range g.Scopes {
		k.Scopes[i] = string(s)
	}
	if !g.Expires.IsZero() {
		k.Expires = &g.Expires
	}
	if g.Models != (cove.Budget{}) {
		k.ModelBudget = new(api.ModelBudget(g.Models))
	}
	return k
}

// presentedKey returns the key of a request. Two keys, equal or not, are none:
// a proxy in between might have checked the other.
func presentedKey(h http.Header) (string, bool) {
	keys, bearers := h.Values("X-Api-Key"), h.Values("Authorization")
	if len(keys)+len(bearers) != 1 {
		return "", false
	}
	if len(keys) == 1 {
		return keys[0], keys[0] != ""
	}
	scheme, token, ok := strings.Cut(bearers[0], " ")
	token = strings.TrimLeft(token, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

// addressGroup returns the group of addresses by which strangers are told apart:
// an IPv4 address, or the /64 of one IPv6 subscriber.
func addressGroup(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return "unknown"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return "unknown"
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		prefix, _ := ip.Prefix(64)
		return prefix.String()
	}
	return ip.String()
}
