// Package binfmt reads the emulators that binfmt_misc has for programs of other architectures.
package binfmt

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// Dir is the mount point of binfmt_misc.
const Dir = "/proc/sys/fs/binfmt_misc"

// Emulator is an enabled entry of binfmt_misc for ELF programs.
type Emulator struct {
	Name        string // of the entry, as "qemu-aarch64"
	Interpreter string // a path
	// Fixed: the kernel opened the interpreter at the registration (flag F). Otherwise it looks Interpreter up at each
	// start, in the root of the program.
	Fixed bool
}

// Emulators returns the emulators of a directory like [Dir], by their names; none where binfmt_misc is not mounted.
func Emulators(dir string) []Emulator {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil || strings.TrimSpace(string(status)) != "enabled" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []Emulator
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name())) // register cannot be read
		if err != nil {
			continue
		}
		if e, ok := parse(string(text)); ok {
			e.Name = entry.Name()
			all = append(all, e)
		}
	}
	return all
}

// parse reads an entry; ok is false where it is disabled or not for ELF programs.
func parse(text string) (e Emulator, ok bool) {
	enabled, elf := false, false
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "enabled":
			enabled = true
		case "interpreter":
			e.Interpreter = value
		case "flags:":
			e.Fixed = strings.Contains(value, "F")
		case "magic":
			elf = strings.HasPrefix(value, hex.EncodeToString([]byte("\x7fELF")))
		}
	}
	return e, enabled && elf
}
