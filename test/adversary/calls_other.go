//go:build !amd64

package adversary

func archNever() map[string]int { return nil }
