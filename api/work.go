package api

import "time"

// ImportedWork is the answer of POST /sandboxes/{sandbox}/import: what the
// sandbox's repository has now, as it was checked and taken over.
type ImportedWork struct {
	Refs      []WorkRef `json:"refs" nullable:"false" doc:"HEAD is what is checked out, heads/NAME a branch, work a commit of what is not committed"`
	Base      string    `json:"base,omitempty" doc:"Id of the commit the sandbox began at"`
	Branch    string    `json:"branch" doc:"The sandbox's own"`
	Remote    string    `json:"remote,omitempty" doc:"Where it can be pushed"`
	Directory string    `json:"directory,omitempty" doc:"Git directory on the machine, with the refs below refs/sandbox/; for its owner"`
}

// WorkRef is one ref of a sandbox's work.
type WorkRef struct {
	Name string `json:"name" example:"heads/cove/brave-otter"`
	ID   string `json:"id" doc:"Of a commit"`
}

// ApplyRequest asks for a sandbox's work in a directory of the machine: POST /sandboxes/{sandbox}/apply.
type ApplyRequest struct {
	Directory  string       `json:"directory" doc:"Top of a checkout, absolute"`
	Paths      []string     `json:"paths,omitempty" doc:"Of the repository; all when absent"`
	Choice     []WorkChoice `json:"choice,omitempty" maxItems:"20000" doc:"These files, or parts of them, instead of paths"`
	Restricted bool         `json:"restricted,omitempty" doc:"Files that decide what others run, too, such as those of CI"`
	Merge      bool         `json:"merge,omitempty" doc:"Merge files that have been changed in the directory, too; otherwise they are refused, and nothing is changed"`
}

// WorkChoice selects a changed file, or parts of it.
type WorkChoice struct {
	Path  string `json:"path"`
	NewID string `json:"new_id,omitempty" doc:"As it was listed: refused when the file has changed since"`
	Parts []int  `json:"parts,omitempty" doc:"Of its patch: the runs of changed lines, counted from 1, and 0 for its mode; all of the file when absent"`
}

// AppliedWork lists the files that were changed.
type AppliedWork struct {
	Changes   []WorkChange   `json:"changes" nullable:"false"`
	Conflicts []WorkConflict `json:"conflicts,omitempty" doc:"Where files were merged: what is left to do by hand"`
}

// WorkConflict is a file that both sides have changed.
type WorkConflict struct {
	Path    string `json:"path"`
	Why     string `json:"why"`
	Markers bool   `json:"markers,omitempty" doc:"Both sides are in the file, between markers; otherwise it is as it was"`
}

// WorkChanges is the answer of GET /sandboxes/{sandbox}/changes.
type WorkChanges struct {
	Changes []WorkChange `json:"changes" nullable:"false" doc:"By path"`
}

// HeldWork is the answer of GET /sandboxes/{sandbox}/held.
type HeldWork struct {
	Commits int `json:"commits" doc:"On any branch, since the sandbox began, those of its last stash included"`
	Aside   int `json:"aside" doc:"Of the commits, those that the branch that is checked out does not have"`
	Files   int `json:"files" doc:"Changed and not committed, without what programs make again, such as __pycache__"`
}

// WorkChange is one file that work changes.
type WorkChange struct {
	Path    string `json:"path" doc:"Within the repository; what is not UTF-8 in it is U+FFFD"`
	OldPath string `json:"old_path,omitempty" doc:"Of a file that is renamed"`
	Change  string `json:"change" enum:"added,changed,deleted,renamed,merged" doc:"merged: applied to a file that had been changed"`
	OldMode string `json:"old_mode,omitempty" doc:"As git writes it; absent when added" example:"100644"`
	NewMode string `json:"new_mode,omitempty" doc:"As git writes it; absent when deleted" example:"100755"`
	NewID   string `json:"new_id,omitempty" doc:"Of the content, as git counts it; absent when deleted"`
	Added   int    `json:"added" doc:"Lines"`
	Removed int    `json:"removed" doc:"Lines"`
	Binary  bool   `json:"binary,omitempty" doc:"It has no lines"`
	Patch   string `json:"patch,omitempty" doc:"Where it was asked for; what is not UTF-8 in it is U+FFFD"`
}

// WorkCommits is the answer of GET /sandboxes/{sandbox}/commits.
type WorkCommits struct {
	Commits []WorkCommit `json:"commits" nullable:"false" doc:"Newest first"`
}

// WorkCommit is one commit of a sandbox's.
type WorkCommit struct {
	ID        string     `json:"id"`
	Parents   []string   `json:"parents" nullable:"false"`
	Author    WorkPerson `json:"author"`
	Committer WorkPerson `json:"committer"`
	Message   string     `json:"message" doc:"Its first line is the subject"`
}

// WorkPerson is the author or committer of a commit, as the sandbox recorded it.
type WorkPerson struct {
	Name  string    `json:"name"`
	Email string    `json:"email"`
	Time  time.Time `json:"time,omitzero" doc:"Absent where no calendar has it"`
}

// PushRequest pushes what a sandbox has committed: POST /sandboxes/{sandbox}/push.
type PushRequest struct {
	Branch string `json:"branch,omitempty" doc:"Of the remote; the sandbox's own when absent"`
	Commit string `json:"commit,omitempty" doc:"Push only if this is what the sandbox has checked out: what was approved"`
	Ask    bool   `json:"ask,omitempty" doc:"Wait until it is allowed, as a request that a policy asks about does (GET /network/holds); without an answer it is denied"`
}

// PullRequest opens a pull request for what was pushed: POST /sandboxes/{sandbox}/pull.
type PullRequest struct {
	Branch string `json:"branch" minLength:"1" maxLength:"250" doc:"Of the remote, with the commits"`
	Base   string `json:"base" minLength:"1" maxLength:"250" doc:"Of the remote, to merge into"`
	Title  string `json:"title" minLength:"1" maxLength:"1000"`
	Body   string `json:"body,omitempty" maxLength:"65536"`
	Draft  bool   `json:"draft,omitempty"`
}

// OpenedPull is a pull request that is open.
type OpenedPull struct {
	URL    string `json:"url"`
	Number int    `json:"number"`
}

// PushedWork describes the commits that were pushed.
type PushedWork struct {
	Remote string `json:"remote"`
	Branch string `json:"branch"`
	Commit string `json:"commit"`
}
