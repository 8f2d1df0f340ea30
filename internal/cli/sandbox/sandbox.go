package sandbox

// shortID is enough of a commit's id for people.
func shortID(id string) string { return id[:min(len(id), 12)] }
