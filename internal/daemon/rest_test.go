package daemon

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/linux/procmaps"
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
	for line, want := range map[string]bool{
		"00400000-0178f000 r-xp 00000000 fe:00 9978331    /usr/bin/cove-server":      true,
		"0178f000-02aad000 r--p 0138f000 fe:00 9978331    /usr/bin/cove-server":      true,
		"02aad000-02b84000 rw-p 026ad000 fe:00 9978331    /usr/bin/cove-server":      false,
		"0178f000-02aad000 r--p 0138f000 fe:00 9978331    /home/usr/bin/cove-server": false,
		"13348b000000-13348d400000 rw-p 00000000 00:00 0 ":                           false,
	} {
		all, err := procmaps.Parse([]byte(line))
		if err != nil || len(all) != 1 || codeOf("/usr/bin/cove-server", all[0]) != want {
			t.Errorf("%q: %+v, %v", line, all, err)
		}
	}
}
