package config

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

// TestWarm: entries are texts or mappings in the file, and texts elsewhere, and can be read back as they are shown.
func TestWarm(t *testing.T) {
	want := []Warm{{Runtime: "node", Least: 1}, {Runtime: "python", Image: "oci:/srv/{a}", Least: 1},
		{Runtime: "python", Engine: "docker", Least: 1}, {Runtime: "ruby", Most: 8},
		{Runtime: "bash", Image: "alpine:3", Limits: Resources{MemoryMB: 512, CPUs: 1.5}, Least: 2, Most: 9, Refill: 3,
			MaxAge: Duration(2 * time.Minute)}}
	c := load(t, `sandbox:
  pool:
    warm:
      - node
      - python@oci:/srv/{a}
      - {runtime: python, engine: docker}
      - runtime: ruby
        least: 0
        most: 8
      - runtime: bash
        image: alpine:3
        limits: {memory_mb: 512, cpus: 1.5}
        least: 2
        most: 9
        refill: 3
        max_age: 2m
`)
	if got := c.Sandbox.Pool.Warm; !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v\nwant %+v", got, want)
	}
	if l := want[4].Asks(); l != (cove.Limits{Memory: 512 << 20, CPUs: 1.5}) {
		t.Errorf("%+v", l)
	}
	var shown bytes.Buffer
	if err := c.Show(&shown); err != nil {
		t.Fatal(err)
	}
	again := load(t, shown.String())
	if got := again.Sandbox.Pool.Warm; !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nis read back as %+v", shown.String(), got)
	}
	s := source()
	s.Environ = append(s.Environ, "COVE_SANDBOX_POOL_WARM=node,python@oci:/srv/{a}")
	if c, err := Load(s); err != nil || !reflect.DeepEqual(c.Sandbox.Pool.Warm, want[:2]) {
		t.Errorf("of the environment: %+v, %v", c, err)
	}
}
