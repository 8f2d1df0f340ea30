package unpack

import (
	"bufio"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mayChown reports whether the process can give files to any id that a sandbox maps: it needs CAP_CHOWN, and a user
// namespace with those ids.
func mayChown() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil || data[0].Effective&(1<<unix.CAP_CHOWN) == 0 {
		return false
	}
	return mapsAll("/proc/self/uid_map") && mapsAll("/proc/self/gid_map")
}

// mapsAll reports whether an id map contains 0 to 65535.
func mapsAll(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	next := int64(0) // the kernel does not sort the map; real maps are sorted
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var inside, outside, length int64
		if _, err := fmt.Sscan(lines.Text(), &inside, &outside, &length); err != nil {
			return false
		}
		if inside <= next {
			next = max(next, inside+length)
		}
	}
	return next > 65535
}

func procSelf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
