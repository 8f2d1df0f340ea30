package cove

import "strings"

// ParseLabels reads labels as flags and queries have them, KEY=VALUE. Errors: InvalidArgument.
func ParseLabels(pairs []string) (map[string]string, error) {
	var labels map[string]string
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, Errorf(InvalidArgument, "the label %.80q is not KEY=VALUE", p).WithHint("for example team=search")
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	return labels, nil
}

// CheckLabels refuses labels that are malformed, too long or too many. Errors: InvalidArgument.
func CheckLabels(labels map[string]string) error {
	for k, v := range labels {
		if k == "" || strings.Contains(k, "=") || len(k) > 63 || len(v) > 1024 || len(labels) > 64 {
			return Errorf(InvalidArgument, "the labels are malformed, too long or too many").
				WithHint("use at most 64, of names up to 63 bytes without \"=\" and values up to 1024")
		}
	}
	return nil
}

// HasLabels reports whether labels has all of those that are wanted.
func HasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
