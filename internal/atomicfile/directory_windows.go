package atomicfile

// SyncDir has nothing to do: Windows writes the names of a directory with its files, and syncs no directories.
func SyncDir(string) error { return nil }
