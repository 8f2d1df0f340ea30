package procmaps

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestParse: names may have spaces, and a file may have the name of what the kernel maps.
func TestParse(t *testing.T) {
	all, err := Parse([]byte(`00400000-0178f000 r-xp 00000000 fe:00 9978331    /usr/bin/cove server
0178f000-02aad000 r--s 00001000 fe:00 7    /a (deleted)
13348b000000-13348d400000 rw-p 00000000 00:00 0 
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`))
	want := []Mapping{
		{From: 0x400000, To: 0x178f000, Prot: unix.PROT_READ | unix.PROT_EXEC, Inode: 9978331, Name: "/usr/bin/cove server"},
		{From: 0x178f000, To: 0x2aad000, Prot: unix.PROT_READ, Shared: true, Offset: 0x1000, Inode: 7,
			Name: "/a (deleted)"},
		{From: 0x13348b000000, To: 0x13348d400000, Prot: unix.PROT_READ | unix.PROT_WRITE},
	}
	if !slices.Equal(all, want) || err != nil {
		t.Errorf("%+v, %v, want %+v", all, err, want)
	}
}

// FuzzParse: no text of maps has more than a mapping for each of its lines, whatever names the process has chosen.
func FuzzParse(f *testing.F) {
	own, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("7f00-7f01 r-xp 00000000 08:01 7 /a\\012b (deleted)\n10-20 rw-p 0 00:00 0\n"))
	f.Add([]byte("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := Parse(text)
		if lines := bytes.Count(text, []byte("\n")) + 1; len(all) > lines || err != nil && all != nil {
			t.Fatalf("%d mappings of %d lines, %v", len(all), lines, err)
		}
		var last uint64
		for _, m := range all {
			if m.From < last || m.To <= m.From || m.From%pageSize != 0 || m.To%pageSize != 0 {
				t.Fatalf("%+v", m)
			}
			last = m.To
		}
	})
}
