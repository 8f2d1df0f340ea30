package flags

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

func TestServices(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string { return map[string]string{"PASSWORD": "of the shell"}[name] }
	o := Services{images: []string{"db=postgres:15", "cache=dir:root"},
		env:   []string{"db=A=1=2", "db=PASSWORD", "cache=B="},
		ports: []string{"db=5432", "db=5433"}}
	got, err := o.Request(getenv)
	want := []api.ServiceRequest{
		{Name: "db", Image: "postgres:15", Env: map[string]string{"A": "1=2", "PASSWORD": "of the shell"},
			Ports: []uint16{5432, 5433}},
		{Name: "cache", Image: "dir:" + here + "/root", Env: map[string]string{"B": ""}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := new(Services).Request(getenv); got != nil || err != nil {
		t.Errorf("none: %+v, %v", got, err)
	}
	one := []string{"db=x"}
	for _, c := range []struct {
		o    Services
		says string
	}{
		{Services{images: []string{"db"}}, "NAME=IMAGE"}, {Services{images: []string{"=x"}}, "NAME=IMAGE"},
		{Services{images: []string{"db="}}, "NAME=IMAGE"},
		{Services{images: one, env: []string{"d=A=1"}}, "name of a service"},
		{Services{images: one, env: []string{"db"}}, "name of a service"},
		{Services{images: one, env: []string{"db=MISSING"}}, "no variable"},
		{Services{images: one, env: []string{"db==1"}}, "no name"},
		{Services{images: one, env: []string{"db=A=\xff"}}, "UTF-8"},
		{Services{env: []string{"db=A=1"}}, "name of a service"}, {Services{images: one, ports: []string{"db=0"}}, "no port"},
		{Services{images: one, ports: []string{"db=65536"}}, "no port"},
		{Services{images: one, ports: []string{"other=1"}}, "name of a service"},
	} {
		if got, err := c.o.Request(getenv); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %+v, %v; want %q", c.o, got, err, c.says)
		}
	}
}
