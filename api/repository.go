package api

import "time"

// StoredRepository is a repository in the store: what sandboxes of it borrow their objects from.
type StoredRepository struct {
	Source    string    `json:"source" doc:"Address, or directory" example:"https://github.com/owner/repo.git"`
	Name      string    `json:"name" doc:"What the store keeps it under" example:"github.com/owner/repo"`
	Size      int64     `json:"size" doc:"Bytes on disk"`
	Partial   bool      `json:"partial" doc:"Contents of files are left out until they are checked out"`
	FetchedAt time.Time `json:"fetched_at"`
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
