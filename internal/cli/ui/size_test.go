package ui

import (
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

func TestParseSize(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		in   string
		step int64
		want int64 // 0: refused
	}{
		{"256M", mib, 256 << 20}, {"256m", mib, 256 << 20}, {"256MiB", mib, 256 << 20}, {"256 MB", mib, 256 << 20},
		{"1G", mib, 1 << 30}, {"1.5G", mib, 3 << 29}, {"1048576", mib, mib}, {"1024K", mib, mib}, {"64K", 1 << 10, 64 << 10},
		{"", mib, 0}, {"M", mib, 0}, {"0", mib, 0}, {"0M", mib, 0}, {"-1M", mib, 0}, {"100", mib, 0}, {"1.3M", mib, 0},
		{"1T", mib, 0},
		{"1e3M", mib, 0}, {"NaN", mib, 0}, {"Inf", mib, 0}, {"0x10M", mib, 0}, {"+1M", mib, 0}, {"1_0M", mib, 0},
		{"99999999999G", mib, 0}, {"1M1", mib, 0}, {"١M", mib, 0},
	} {
		got, err := ParseSize(c.in, c.step)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("parseSize(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
		if err != nil && (cove.ErrorCode(err) != cove.InvalidArgument || cove.ErrorHint(err) == "") {
			t.Errorf("parseSize(%q): %#v", c.in, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"256M", "1.5 GiB", "-1", "1e9", "٣K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s, 1<<10); err == nil && (n <= 0 || n%(1<<10) != 0) {
			t.Fatalf("parseSize(%q) = %d", s, n)
		}
	})
}

func TestParseSeconds(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration // 0: refused
	}{
		{"10s", 10 * time.Second}, {"1m30s", 90 * time.Second}, {"2", 2 * time.Second}, {"0.5", 500 * time.Millisecond},
		{"500ms", 500 * time.Millisecond},
		{"", 0}, {"0", 0}, {"-1s", 0}, {"NaN", 0}, {"Inf", 0}, {"1e300", 0}, {"soon", 0},
	} {
		if got, err := ParseSeconds(c.in); got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("parseSeconds(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2030, 1, 10, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		in   string
		want time.Time
	}{
		{"90m", now.Add(-90 * time.Minute)}, {"1h30m", now.Add(-90 * time.Minute)}, {"7d", now.AddDate(0, 0, -7)},
		{"0.5d", now.Add(-12 * time.Hour)},
		{"2030-01-02T03:04:05Z", time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)},
		{"2030-01-02T03:04:05+01:00", time.Date(2030, 1, 2, 2, 4, 5, 0, time.UTC)},
		{"", time.Time{}},
	} {
		if got, err := ParseSince(c.in, now); err != nil || !got.Equal(c.want) {
			t.Errorf("parseSince(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"0", "0s", "-1h", "-1d", "d", "NaNd", "Infd", "1e400d", "99999999d", "1e300d", "7",
		"yesterday", "2030-01-02"} {
		if got, err := ParseSince(in, now); cove.ErrorCode(err) != cove.InvalidArgument || cove.ErrorHint(err) == "" {
			t.Errorf("parseSince(%q) = %v, %v", in, got, err)
		}
	}
}
