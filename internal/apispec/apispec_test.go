package apispec

import (
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// fill sets every field below v to a value that is not zero, each to another one.
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
	case reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	default:
		panic("no value of kind " + v.Kind().String())
	}
}

// TestSpecIsWhole: a field of api.Spec that either converter forgets is noticed here.
func TestSpecIsWhole(t *testing.T) {
	var said api.Spec
	fill(reflect.ValueOf(&said).Elem(), new(int))
	if got := SpecOf(Spec(said)); !reflect.DeepEqual(got, said) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Limits, said, said.Limits)
	}
	if got := Spec(api.Spec{}); !reflect.DeepEqual(got, cove.Spec{}) {
		t.Errorf("out of nothing: %+v", got)
	}
}

// TestNetworkIsWhole: every field of a permission arrives.
func TestNetworkIsWhole(t *testing.T) {
	var said api.NetworkPermission
	fill(reflect.ValueOf(&said).Elem(), new(int))
	got := Network(&said)
	v := reflect.ValueOf(*got)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is lost: %+v", v.Type().Field(i).Name, got)
		}
	}
	if got.Budget != cove.Budget(*said.Budget) || got.Policies[0] != cove.PolicyText(said.Policies[0]) {
		t.Errorf("%+v is %+v", said, got)
	}
	if Network(nil) != nil {
		t.Error("a network out of nothing")
	}
}

func TestLimitsSaturate(t *testing.T) {
	for said, want := range map[int64]int64{
		3: 3 << 20, -3: -3 << 20, 0: 0, math.MaxInt64: math.MaxInt64, math.MinInt64: math.MinInt64, 1 << 43: math.MaxInt64,
		-1 << 44: math.MinInt64,
	} {
		if got := Limits(api.Limits{MemoryMB: said}).Memory; got != want {
			t.Errorf("%d MiB is %d, want %d", said, got, want)
		}
	}
	for said, want := range map[api.Seconds]time.Duration{2.5: 2500 * time.Millisecond, 1e300: math.MaxInt64,
		-1e300: math.MinInt64} {
		if got := Duration(said); got != want {
			t.Errorf("%g s is %d, want %d", said, got, want)
		}
	}
}
