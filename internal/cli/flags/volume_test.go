package flags

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

func TestVolumes(t *testing.T) {
	o := Volumes{disk: []string{"/data"}, memory: []string{"/fast", "/small:64M"}}
	want := []api.Volume{{Target: "/data"}, {Target: "/fast", Memory: true}, {Target: "/small", Memory: true, SizeMB: 64}}
	if got, err := o.Request(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for want, o := range map[string]Volumes{
		"place inside":  {disk: []string{"name:/data"}},
		"is not a size": {memory: []string{"/fast:much"}},
	} {
		if _, err := o.Request(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
