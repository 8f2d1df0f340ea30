package image

import (
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cove-sandbox/cove/internal/engine"
)

func TestHealthAndPorts(t *testing.T) {
	for _, c := range []struct {
		test, shell []string
		want        []string
	}{
		{nil, nil, nil}, {[]string{"NONE"}, nil, nil}, {[]string{"CMD"}, nil, nil}, {[]string{"OTHER", "x"}, nil, nil},
		{[]string{"CMD", "pg_isready", "-q"}, nil, []string{"pg_isready", "-q"}},
		{[]string{"CMD-SHELL", "pg_isready || exit 1"}, nil, []string{"/bin/sh", "-c", "pg_isready || exit 1"}},
		{[]string{"CMD-SHELL", "x"}, []string{"/bin/bash", "-ec"}, []string{"/bin/bash", "-ec", "x"}},
	} {
		of := v1.Config{Shell: c.shell}
		if c.test != nil {
			of.Healthcheck = &v1.HealthConfig{Test: c.test, Interval: time.Second, Timeout: time.Minute, StartPeriod: time.Hour}
		}
		want := engine.Health{Args: c.want}
		if c.test != nil && len(c.test) > 1 {
			want.Interval, want.Timeout, want.Start = time.Second, time.Minute, time.Hour
		}
		if got := health(of); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", c.test, got, want)
		}
	}
	got := ports(map[string]struct{}{"6379/tcp": {}, "53/udp": {}, "80": {}, "443/tcp": {}, "80/tcp": {}, "x": {}, "0": {},
		"70000": {}})
	if !slices.Equal(got, []uint16{80, 443, 6379}) {
		t.Errorf("%v", got)
	}
}
