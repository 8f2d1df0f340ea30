package cove

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckVolumes(t *testing.T) {
	if err := CheckVolumes([]Volume{{Target: "/data"}, {Target: "/fast", Memory: true, Size: 1 << 20},
		{Target: "/workspace/node_modules"}, {Target: "/memory", Memory: true}}); err != nil {
		t.Error(err)
	}
	for want, bad := range map[string][]Volume{
		"at most":     slices.Repeat([]Volume{{Target: "/data"}}, MaxVolumes+1),
		"no place":    {{Target: "data"}},
		`"/data/"`:    {{Target: "/data/"}},
		"/a/../b":     {{Target: "/a/../b"}},
		`"/a\x00"`:    {{Target: "/a\x00"}},
		`""`:          {{}},
		"of its own":  {{Target: "/data", Size: 1}},
		"size of its": {{Target: "/data", Memory: true, Size: -1}},
		"two volumes": {{Target: "/data"}, {Target: "/data", Memory: true}},
	} {
		if err := CheckVolumes(bad); ErrorCode(err) != InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
