package cove

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"
)

// fill sets every field below v to a value that is not zero. Each is another one,
// so that a field which takes the place of another is noticed.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text" + strconv.Itoa(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	default:
		panic("no value of kind " + v.Kind().String())
	}
}

func wholeSpec() Spec {
	var s Spec
	fill(reflect.ValueOf(&s).Elem(), new(int))
	return s
}

// TestOverIsWhole: a field of a Spec that Over forgets is noticed here.
func TestOverIsWhole(t *testing.T) {
	whole := wholeSpec()
	if got := (Spec{}).Over(whole); !reflect.DeepEqual(got, whole) {
		t.Errorf("defaults alone:\n%+v\nwant\n%+v", got, whole)
	}
	if got := whole.Over(Spec{}); !reflect.DeepEqual(got, whole) {
		t.Errorf("no defaults:\n%+v\nwant\n%+v", got, whole)
	}
}

func TestSpecAsJSON(t *testing.T) {
	whole := wholeSpec()
	text, err := json.Marshal(whole)
	var back Spec
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || !reflect.DeepEqual(back, whole) {
		t.Errorf("%s, %v is\n%+v\nwant\n%+v", text, err, back, whole)
	}
}

// TestPrecedence lays a request over its profile, that over the configuration, and that over what is built in.
func TestPrecedence(t *testing.T) {
	request := Spec{
		Image: "request", Env: map[string]string{"A": "request"}, Labels: map[string]string{"who": "request"},
		Shape:  Shape{Limits: Limits{Memory: 1}},
		Mounts: []Mount{{Source: "/request", Target: "/data"}, {Source: "/request", Target: "/own"}},
		Git:    &GitIdentity{Name: "Ada"}, Screen: []string{},
	}
	profile := Spec{
		Profile: "careful", Image: "profile", Engine: "docker", AllowPR: true,
		Env:    map[string]string{"A": "profile", "B": "profile"},
		Shape:  Shape{Isolation: IsolationMicroVM, Limits: Limits{Memory: 2, CPUs: 2}},
		Mounts: []Mount{{Source: "/profile", Target: "/data", ReadOnly: true}, {Source: "/profile", Target: "/more"}},
		Git:    &GitIdentity{Name: "Robo", Email: "robo@example.com"}, Screen: []string{"top"},
	}
	configured := Spec{
		Engine: "auto", Shape: Shape{Isolation: IsolationGVisor, Limits: Limits{Memory: 3, CPUs: 3, PIDs: 3}},
	}
	builtIn := Spec{Shape: Shape{
		Isolation: IsolationContainer, User: AgentUser, Lifetime: LifetimeDetached,
		Limits: Limits{Memory: 4, CPUs: 4, PIDs: 4, Timeout: time.Second},
	}}
	want := Spec{
		Profile: "careful", Image: "request", Engine: "docker", AllowPR: true,
		Env: map[string]string{"A": "request", "B": "profile"}, Labels: map[string]string{"who": "request"},
		Shape: Shape{
			Isolation: IsolationMicroVM, User: AgentUser, Lifetime: LifetimeDetached,
			Limits: Limits{Memory: 1, CPUs: 2, PIDs: 3, Timeout: time.Second},
		},
		Mounts: []Mount{
			{Source: "/profile", Target: "/more"}, {Source: "/request", Target: "/data"}, {Source: "/request", Target: "/own"},
		},
		Git: &GitIdentity{Name: "Ada", Email: "robo@example.com"}, Screen: []string{},
	}
	if got := request.Over(profile).Over(configured).Over(builtIn); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if len(request.Env) != 1 || len(profile.Env) != 2 || len(request.Mounts) != 2 {
		t.Errorf("what was laid over each other has changed: %+v, %+v", request, profile)
	}
}

func TestNetworkOver(t *testing.T) {
	on := func(n Network) *Network { n.Enabled = true; return &n }
	for name, c := range map[string]struct{ own, defaults, want *Network }{
		"neither":           {nil, nil, nil},
		"the request alone": {on(Network{Allow: []string{"a"}}), nil, on(Network{Allow: []string{"a"}})},
		"the default alone": {nil, on(Network{Mode: NetworkOpen}), on(Network{Mode: NetworkOpen})},
		"none wins":         {&Network{}, on(Network{Mode: NetworkOpen}), &Network{}},
		"none by default":   {nil, &Network{Mode: NetworkNone}, &Network{}},
		"rules beside none by default": {
			on(Network{Mode: NetworkLimited, Allow: []string{"a"}}), &Network{Mode: NetworkNone},
			on(Network{Mode: NetworkLimited, Allow: []string{"a"}}),
		},
		"credentials beside none by default": {
			on(Network{Credentials: []string{"a"}}), &Network{Mode: NetworkNone}, &Network{},
		},
		"both": {
			on(Network{
				Mode: NetworkOpen, Allow: []string{"a", "b"}, Deny: []string{"x"}, Credentials: []string{"c"},
				Providers: []string{"own"},
				Policies:  []PolicyText{{Source: "own"}}, Budget: Budget{Cost: 1},
			}),
			on(Network{
				Mode: NetworkLimited, Allow: []string{"b", "d"}, Deny: []string{"y"}, Credentials: []string{"e"},
				Providers: []string{"default"},
				Policies:  []PolicyText{{Source: "default"}}, Budget: Budget{Requests: 2, Cost: 2}, AllowPR: true,
			}),
			on(Network{
				Mode: NetworkOpen, Allow: []string{"b", "d", "a"}, Deny: []string{"y", "x"}, Credentials: []string{"e", "c"},
				Providers: []string{"own"}, Policies: []PolicyText{{Source: "default"}, {Source: "own"}},
				Budget: Budget{Requests: 2, Cost: 1}, AllowPR: true,
			}),
		},
	} {
		if got := c.own.Over(c.defaults); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
