package unpack

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mayChown reports whether the process can give files to any id of a sandbox: CAP_CHOWN, and a map of those ids.
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
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	next := int64(0) // the kernel does not sort the map; real maps are sorted
	for line := range strings.Lines(string(data)) {
		var inside, outside, length int64
		if _, err := fmt.Sscan(line, &inside, &outside, &length); err != nil {
			return false
		}
		if inside <= next {
			next = max(next, inside+length)
		}
	}
	return next > 65535
}

func procSelf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
