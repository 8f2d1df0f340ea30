package doctor

import (
	"strings"
	"testing"
)

func TestJudgeRunc(t *testing.T) {
	for _, test := range []struct {
		version string
		status  Status
		names   string // a vulnerability that must be named
	}{
		{"1.0.0-rc95", Fail, "CVE-2024-21626"},
		{"1.1.5+ds1", Warn, "CVE-2024-21626"},
		{"1.1.5", Fail, "CVE-2024-21626"},
		{"1.1.12", Fail, "CVE-2025-31133"},
		{"1.1.12-0ubuntu2~22.04.1", Warn, "CVE-2025-31133"},
		{"1.2.7", Fail, "CVE-2025-52881"},
		{"1.2.8", OK, ""},
		{"1.2.12", OK, ""},
		{"1.3.0-rc.1", Fail, "CVE-2025-52565"},
		{"1.3.0", Fail, "CVE-2025-52565"},
		{"1.3.2", Fail, "CVE-2025-52565"},
		{"1.3.3", OK, ""},
		{"v1.3.4", OK, ""},
		{"1.4.0-rc.1", Fail, "CVE-2025-52565"},
		{"1.4.0-rc.2", Fail, "CVE-2025-52565"},
		{"1.4.0-rc.3", OK, ""},
		{"1.4.0", OK, ""},
		{"2.0.0", OK, ""},
		{"unknown", Warn, ""},
		{"", Warn, ""},
	} {
		o := judgeRunc(test.version)
		if o.status != test.status || !strings.Contains(o.found, test.names) {
			t.Errorf("%q: %s: %s", test.version, o.status, o.found)
		}
		if test.names == "CVE-2025-31133" && strings.Contains(o.found, "CVE-2024-21626") {
			t.Errorf("%q: an old hole is named: %s", test.version, o.found)
		}
	}
}
