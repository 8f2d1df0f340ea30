package config

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// NewAPIKey returns a fresh key of 256 random bits, and the hash that api_keys stores. The key is shown once and kept
// nowhere; because it is random, a plain hash of it tells nothing.
func NewAPIKey() (key, hash string) {
	var b [32]byte
	rand.Read(b[:])
	key = "cove_" + hex.EncodeToString(b[:])
	return key, HashAPIKey(key)
}

// HashAPIKey is the hash of a key as api_keys stores it.
func HashAPIKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
