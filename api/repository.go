package api

import "time"

// StoredRepository is a repository in the store: what sandboxes of it borrow their objects from.
type StoredRepository struct {
	Source    string    `json:"source" doc:"Address, or directory" example:"https://github.com/owner/repo.git"`
	Name      string    `json:"name" doc:"What the store keeps it under" example:"github.com/owner/repo"`
	Size      int64     `json:"size" doc:"Bytes on disk"`
	Partial   bool      `json:"partial" doc:"Contents of files are left out until they are checked out"`
	FetchedAt time.Time `json:"fetched_at"`
	UsedAt    time.Time `json:"used_at" doc:"When a sandbox of it was made or removed last, or it was fetched"`
	Sandboxes []string  `json:"sandboxes" nullable:"false" doc:"Ids of those that borrow from it"`
	Kept      []string  `json:"kept,omitempty" doc:"Directories of work that was kept when its sandbox went, and borrows on until it is removed and the repository collected"`
}

// StoredRepositories is the answer of GET /repositories.
type StoredRepositories struct {
	Repositories []StoredRepository `json:"repositories" nullable:"false"`
}

// FetchRepositoryRequest is the body of POST /repositories.
type FetchRepositoryRequest struct {
	Source  string `json:"source" doc:"OWNER/REPO, an HTTPS address, a directory, or its name in the store"`
	Partial bool   `json:"partial,omitempty" doc:"Leave out the contents of files until they are checked out, if the remote supports it; a repository that is in the store stays as it is"`
}

// RepositoryName names a repository: POST /repositories/collect.
type RepositoryName struct {
	Source string `json:"source" doc:"OWNER/REPO, an HTTPS address, a directory, or its name in the store"`
}

// EventFetched is the last event of POST /repositories that succeeded: a StoredRepository.
const EventFetched = "fetched"

// Upload is the answer of POST /uploads.
type Upload struct {
	ID   string `json:"id" example:"up_0123456789abcdefghjkmnpqrs" doc:"For one sandbox of the caller's"`
	Size int64  `json:"size" doc:"Bytes"`
}

// UploadedFolder is a folder of another machine, which was sent with POST /uploads.
type UploadedFolder struct {
	ID      string   `json:"id" doc:"Of the upload" example:"up_0123456789abcdefghjkmnpqrs"`
	Commit  string   `json:"commit" doc:"The commit to begin at, which the upload has with all that it refers to"`
	From    string   `json:"from,omitempty" doc:"The branch or tag of the commit"`
	Shallow []string `json:"shallow,omitempty" maxItems:"10000" doc:"Commits of which the upload has no parents"`
	Remote  string   `json:"remote,omitempty" doc:"Address to push to"`
}
