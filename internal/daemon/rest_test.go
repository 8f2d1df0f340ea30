package daemon

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestUnmapCode: the program's pages are not the process's any more, and it runs on.
func TestUnmapCode(t *testing.T) {
	before := mapped(t)
	if err := unmapCode(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after > before/4*3 {
		t.Errorf("%d KiB of files are mapped, and were %d", after, before)
	}
}

// mapped returns how much of its files this process has mapped, in KiB.
func mapped(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCodeOf(t *testing.T) {
	for line, want := range map[string][2]uintptr{
		"00400000-0178f000 r-xp 00000000 fe:00 9978331    /usr/bin/cove-server":      {0x400000, 0x178f000},
		"0178f000-02aad000 r--p 0138f000 fe:00 9978331    /usr/bin/cove-server":      {0x178f000, 0x2aad000},
		"02aad000-02b84000 rw-p 026ad000 fe:00 9978331    /usr/bin/cove-server":      {},
		"0178f000-02aad000 r--p 0138f000 fe:00 9978331    /home/usr/bin/cove-server": {},
		"13348b000000-13348d400000 rw-p 00000000 00:00 0 ":                           {},
		"": {},
	} {
		if begin, end, ok := codeOf("/usr/bin/cove-server", line); begin != want[0] || end != want[1] || ok != (end > 0) {
			t.Errorf("%q: %x-%x, %v", line, begin, end, ok)
		}
	}
}
