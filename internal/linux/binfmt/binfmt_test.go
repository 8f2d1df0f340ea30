package binfmt

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestEmulators reads entries in the kernel's form. Those that are disabled, and those for other files, are left out.
func TestEmulators(t *testing.T) {
	const magic = "offset 0\nmagic 7f454c460201010000000000000000000200b700\n" +
		"mask ffffffffffffff00fffffffffffffffffeffffff\n"
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("status", "enabled\n")
	write("qemu-aarch64", "enabled\ninterpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P\nflags: POF\n"+magic)
	write("late", "enabled\ninterpreter /opt/an emulator\nflags: \n"+magic)
	write("off", "disabled\ninterpreter /usr/bin/qemu-arm\nflags: F\n"+magic)
	write("python3.11", "enabled\ninterpreter /usr/bin/python3.11\nflags: \noffset 0\nmagic a70d0d0a\n")
	write("jar", "enabled\ninterpreter /usr/bin/jexec\nflags: F\nextension .jar\n")
	want := []Emulator{{"late", "/opt/an emulator", false},
		{"qemu-aarch64", "/usr/libexec/qemu-binfmt/aarch64-binfmt-P", true}}
	if all := Emulators(dir); !slices.Equal(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
	write("status", "disabled\n")
	if all := Emulators(dir); len(all) != 0 {
		t.Errorf("disabled as a whole: %+v", all)
	}
	if all := Emulators(filepath.Join(dir, "none")); len(all) != 0 {
		t.Errorf("without binfmt_misc: %+v", all)
	}
}
